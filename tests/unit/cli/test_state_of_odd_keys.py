"""`headrace state` where keys, entries of maps and values are not plain text."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace import Checkpoint, Computation, Map, Pipeline, agg, hopping, session, sources, state
from headrace.cli.main import cli
from headrace.store.store import Store
from headrace.testing import Harness

MINUTE = 60_000_000


class Odd(Computation):
    by_pair: Map[tuple[str, int], int] = state()
    by_bytes: Map[bytes, int] = state()
    by_number: dict[int, str] = state()
    share: float = state(0.0)

    def process_record(self, record, ctx):
        self.by_pair["a", record.value["n"]] = 1
        self.by_bytes[b"\xff\x00"] = record.value["n"]
        self.by_number = {1: "x"}
        self.share = math.nan


class Keyed(Computation):
    n: int = state(0)

    def process_record(self, record, ctx):
        self.n = record.value["n"]  # 0 would be no state


KEYS: list[Any] = ["", 17, "17", b"raw\xff", ("a", 7), (("a", 1), 2), (None, "x"), 2**63, -(2**63)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    p = Pipeline("odd")
    hits = p.read("in", sources.memory([], timestamp="t"))
    keyed = hits.key_by("k")
    keyed.window(session("30m")).aggregate(n=agg.count(), last=agg.last("n")).named("visits")
    keyed.window(hopping("10m", every="5m")).count().named("hops")
    p.compute(Odd, inputs={"in": "k"})
    by_key = p.read("keys", sources.memory([], timestamp="t"))
    p.compute(Keyed, inputs={by_key: lambda value: KEYS[value["n"]]})
    with Harness(p) as h:
        h.send("keys", *({"n": i, "t": i} for i in range(1, len(KEYS))))
        h.send("in", *({"k": f"k{i % 3}", "n": i, "t": i * MINUTE} for i in range(9)))
        h.settle()
        return on_disk(h.store, tmp_path_factory.mktemp("odd"))


def on_disk(store: Store, where: Path) -> str:
    """The files of a checkpoint in a directory."""
    for found in store.walk():
        if found is not None:
            (where / found.name).parent.mkdir(parents=True, exist_ok=True)
            (where / found.name).write_bytes(store.read(found.name))
    return str(where)


def headrace(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["state", *arguments], prog_name="headrace")


def rows_of(answer: Result) -> list[Any]:
    assert answer.exit_code == 0, answer.output
    return [json.loads(line) for line in answer.stdout.splitlines()]


def test_maps_of_any_keys_are_shown(checkpoint: str) -> None:
    [found] = rows_of(headrace("get", checkpoint, "Odd", "k1"))
    assert found["by_pair"] == [[["a", 1], 1], [["a", 4], 1], [["a", 7], 1]]
    assert found["by_bytes"] == [[{"bytes": "/wA="}, 7]]
    assert found["share"] == "NaN" and found["by_number"] == {"1": "x"}
    every = rows_of(headrace("scan", checkpoint, "Odd"))
    assert found in [{n: v for n, v in row.items() if n != "key"} for row in every]
    assert len(every) == 3


def test_the_state_of_windows_is_shown(checkpoint: str) -> None:
    found = Checkpoint(checkpoint)
    stepped = [name for name in found.computations if name not in ("Odd", "Keyed")]
    assert len(stepped) >= 2
    for name in stepped:
        rows = rows_of(headrace("scan", checkpoint, name))
        assert len(rows) == len(dict(found.scan(name))) > 0
        key = json.dumps(rows[0]["key"])
        assert [{"key": rows[0]["key"], **rows_of(headrace("get", checkpoint, name, key))[0]}] == (
            rows[:1]
        )
        for row in rows_of(headrace("scan", checkpoint, name, "--sql", f'FROM "{name}"')):
            assert row["key"] in [each["key"] for each in rows]


def test_the_entries_that_differ_are_shown(checkpoint: str) -> None:
    last = str(Checkpoint(checkpoint).epoch)
    changes = rows_of(headrace("diff", checkpoint, "0", last))
    assert {"Odd", "Keyed"} < {change["computation"] for change in changes}
    pairs = [change["after"]["by_pair"] for change in changes if change["computation"] == "Odd"]
    assert sorted(pairs)[1] == [[["a", 1], 1], [["a", 4], 1], [["a", 7], 1]]


@pytest.mark.parametrize("number", range(1, len(KEYS)))
def test_every_key_can_be_looked_up_as_it_is_printed(checkpoint: str, number: int) -> None:
    printed = {row["n"]: row["key"] for row in rows_of(headrace("scan", checkpoint, "Keyed"))}
    typed = json.dumps(printed[number])
    assert rows_of(headrace("get", checkpoint, "Keyed", typed)) == [{"n": number}]


def test_a_text_of_digits_needs_quotes_and_the_message_says_so(checkpoint: str) -> None:
    answer = headrace("get", checkpoint, "Odd", "18")
    assert answer.exit_code == 1
    assert "for the key 18 (a number; if the key is a text, quote it: '\"18\"')" in answer.stderr
    dropped = headrace("drop", checkpoint, "Odd", "--key", "18", "--yes")
    assert dropped.exit_code == 1 and "quote it: '\"18\"'" in dropped.stderr
    assert "has no state for the key '18'\n" in headrace("get", checkpoint, "Odd", '"18"').stderr


class Named(Computation):
    key: str = state("")
    n: int = state(0)

    def process_record(self, record, ctx):
        self.n += 1
        self.key = record.value["set"]


def test_a_field_called_key_is_beside_the_key(tmp_path: Path) -> None:
    p = Pipeline("named")
    p.compute(Named, inputs={p.read("in", sources.memory([], timestamp="t")): "k"})
    with Harness(p) as h:
        h.send("in", {"k": "a", "set": "own", "t": 1}, {"k": "b", "set": "", "t": 1})
        h.settle()
        where = on_disk(h.store, tmp_path)
    expected = [{"key_": "a", "key": "own", "n": 1}, {"key_": "b", "n": 1}]
    rows = rows_of(headrace("scan", where, "Named"))
    assert sorted(rows, key=lambda row: row["key_"]) == expected
    query = "SELECT key_, key FROM Named ORDER BY 1"
    assert rows_of(headrace("scan", where, "--sql", query)) == [
        {"key_": "a", "key": "own"},
        {"key_": "b", "key": None},
    ]
