"""Legal numbers at the ends of 64 bits, and what the command says of input that it cannot take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace import HeadraceError, Pipeline
from headrace.cli.main import cli
from headrace.cli.workloads.nexmark import _advised
from headrace.testing import Harness
from headrace.workloads.nexmark.events.reader import event_files, read_foreign
from headrace.workloads.nexmark.registry import pipeline
from headrace.workloads.nexmark.streams import Auction

AT = 1_436_918_400_000_000
BID = {"kind": "bid", "auction": 1, "bidder": 2, "price": 3, "date_time": AT}
OFFER = {
    "kind": "auction", "id": 1, "initial_bid": 1, "reserve": 1, "date_time": AT,
    "expires": AT + 1_000_000, "seller": 5, "category": 10,
}  # fmt: skip


def ask(query: str, *events: dict[str, Any]) -> list[dict[str, Any]]:
    def auction(p: Pipeline) -> Auction:
        return Auction.of_events(p, read_foreign(p, event_files("events.jsonl")))

    with Harness(pipeline(query, auction), streams=[query]) as h:
        h.send("read", *events)
        h.end()
        return h.read(query)


@pytest.mark.parametrize("price", [2**53 + 1, 2**63 - 1, -(2**63)])
def test_a_price_that_no_float_has_is_the_nearest_one_in_euros(price: int) -> None:
    rows = ask("q1", {**BID, "price": price}, BID)
    assert [row["price"] for row in rows] == [float(price) * 0.908, 3 * 0.908]
    assert ask("q14", {**BID, "price": price}, {**BID, "price": 2_000_000}) == [
        {**row, "price": 2_000_000 * 0.908} for row in ask("q14", {**BID, "price": 2_000_000})
    ]


@pytest.mark.parametrize("expires", [2**63 - 1, 2**63 - 2, 2**63 - 3])
def test_an_auction_that_never_ends_closes_with_its_input(expires: int) -> None:
    offer = {**OFFER, "expires": expires}
    [won] = ask("q9", offer, BID, {**BID, "price": 9, "date_time": AT + 1})
    assert (won["expires"], won["price"]) == (expires, 9)
    assert ask("q4", offer, BID)[-1] == {"category": 10, "avg": 3.0}
    assert ask("q6", offer, BID)[-1] == {"seller": 5, "avg": 3.0}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "cannot be read: Empty CSV file"),
        ("a,b\n1,2\n", "has no column key and no column value: its columns are a, b"),
        ("key,b\n1,2\n", "has no column value: its columns are key, b"),
    ],
)
def test_a_side_input_that_is_no_table_of_keys_is_refused(
    text: str, reason: str, tmp_path: Path
) -> None:
    side = tmp_path / "side.csv"
    side.write_text(text)
    asked = ["nexmark", "q13", "--output", str(tmp_path / "out"), "--side-input", str(side)]
    done = CliRunner().invoke(cli, asked)
    assert done.exit_code == 1 and isinstance(done.exception, SystemExit), done.exception
    assert f"nexmark: --side-input {side} {reason}" in done.output


@pytest.mark.parametrize("given", ["none.jsonl", "none*.jsonl", "empty", "empty/*"])
def test_input_without_files_is_refused_before_the_output_is_touched(
    given: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    asked = ["nexmark", "q1", "--output", str(tmp_path / "out"), "--input", str(tmp_path / given)]
    done = CliRunner().invoke(cli, asked)
    assert done.exit_code == 1 and f"there is no file {tmp_path / given}" in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--json", "--save-events"])
@pytest.mark.parametrize("where", ["file/x.json", "."])
def test_a_file_that_cannot_be_written_is_refused_before_the_run(
    option: str, where: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    asked = ["nexmark", "q1", "--output", str(tmp_path / "out"), option, str(tmp_path / where)]
    done = CliRunner().invoke(cli, asked)
    assert done.exit_code == 2 and option in done.output
    assert not (tmp_path / "out").exists()


def test_dead_letters_are_those_of_given_input(tmp_path: Path) -> None:
    asked = ["nexmark", "q1", "--output", str(tmp_path / "out"), "--dead", str(tmp_path / "dead")]
    done = CliRunner().invoke(cli, asked)
    assert done.exit_code == 1 and "--dead is for records of --input" in done.output


@pytest.mark.parametrize("wrong", [{**BID, "price": None}, {**BID, "date_time": "soon"}])
def test_what_is_no_event_names_the_option_that_sends_it_aside(wrong: dict[str, Any]) -> None:
    with pytest.raises(HeadraceError, match="--dead DIR"), _advised(None):
        ask("q1", BID, wrong)
    with pytest.raises(HeadraceError) as raised, _advised(Path("dead")):
        ask("q1", BID, wrong)
    assert "--dead" not in str(raised.value)
    with pytest.raises(HeadraceError) as raised, _advised(None):
        raise HeadraceError("the disk is full")
    assert str(raised.value) == "the disk is full"
