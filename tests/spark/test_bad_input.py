"""Bad input gets an error that says what to do, and loses nothing.

Each bad line stands between good ones. With errors="stop" the run stops and names it; once it is
mended, the run goes on to the answer of plain Python. With errors=to("dead") the run completes, the
good ones count, and the bad one is aside with its error.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.reference.exchange import exchange as plain_exchange
from tests.spark.pipelines import exchange, make_trades, trades_in, write_trades
from tests.spark.support import bag, local_follower, rows, run_local, state_of
from tests.unit.systems import FILES

from headrace import (
    Computation,
    Context,
    CorruptCheckpoint,
    HeadraceError,
    IncompatibleState,
    InvalidPipeline,
    InvalidRecord,
    Pipeline,
    Record,
    SourceError,
    StoreError,
    UserCodeError,
    sinks,
    sources,
    state,
    to,
)
from headrace.store.disk import DiskStore

GOOD = [{"key": f"k{n % 3}", "ts": 1_000_000 * n} for n in range(12)]
BAD_AT = 7
SLOTS, EPOCH_RECORDS = 2, 4


class Count(Computation):
    """How often a key was seen."""

    count: int = state(0)

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        self.count += 1
        ctx.produce({"key": ctx.key, "count": self.count})


def shop(where: Path, *, key: Any = "key", errors: Any = "stop") -> Pipeline:
    p = Pipeline("shop")
    p.read("events", sources.jsonl(str(where / "in"), timestamp="ts"), errors=errors)
    p.compute(Count, inputs={"events": key}, outputs="counts", errors=errors)
    p.stream("counts").write(sinks.jsonl(where / "out"))
    if errors != "stop":
        p.stream("dead").write(sinks.jsonl(where / "dead"))
    return p


def write_lines(where: Path, bad: bytes | None) -> None:
    lines = [json.dumps(value).encode() for value in GOOD]
    if bad is not None:
        lines.insert(BAD_AT, bad)
    (where / "in").mkdir(parents=True, exist_ok=True)
    (where / "in" / "events.jsonl").write_bytes(b"\n".join(lines) + b"\n")


def check_counts(where: Path) -> None:
    expected = Counter(value["key"] for value in GOOD)
    told = rows(where / "out")
    assert bag(told) == bag(
        {"key": key, "count": n + 1} for key, count in expected.items() for n in range(count)
    )
    counts = state_of(where / "checkpoint")["Count"]
    assert {key: fields["count"] for key, fields in counts.items()} == expected


def line(**cells: Any) -> bytes:
    return json.dumps({"key": "k1", "ts": 5_000_000, **cells}).encode()


SURROGATE = b'{"key": "k1", "ts": 5000000, "note": "\\ud800"}'
BAD_LINES: dict[str, tuple[bytes, type[HeadraceError], str]] = {
    "malformed JSON": (b'{"key": "k1", "ts": ', SourceError, "not JSON"),
    "a line cut off": (b'{"key": "k1"', SourceError, "not JSON"),
    "not a number": (b'{"key": "k1", "ts": NaN}', SourceError, "not JSON"),
    "no object": (b"5", SourceError, "no column 'ts'"),
    "null": (b"null", SourceError, "no column 'ts'"),
    "invalid UTF-8": (b'{"key": "\xff", "ts": 5}', SourceError, "not UTF-8: byte 0xff"),
    "a lone surrogate": (SURROGATE, SourceError, "surrogate"),
    "nested too deeply": (b"[" * 50_000 + b"]" * 50_000, SourceError, "nested more than"),
    "a number beyond all floats": (b'{"key": "k1", "ts": 5, "n": 1e400}', SourceError, "range"),
    "no timestamp column": (b'{"key": "k1"}', SourceError, "no column 'ts'"),
    "a missing timestamp": (line(ts=None), SourceError, "the timestamp is missing"),
    "a negative timestamp": (line(ts=-5), SourceError, "-5 is before 1970"),
    "an absurd timestamp": (line(ts=17 * 10**17), SourceError, "is after the year 9999"),
    "a timestamp of another kind": (line(ts=True), SourceError, "bool, not a number"),
    "a timestamp in words": (line(ts="yesterday"), SourceError, "'yesterday' is not ISO 8601"),
    "a timestamp without a zone": (line(ts="2026-03-02T10:00:00"), SourceError, "time zone"),
    "no key column": (b'{"ts": 5000000}', InvalidRecord, "no column 'key'"),
    "a missing key": (line(key=None), InvalidRecord, "the key is missing"),
    "an empty key": (line(key=""), InvalidRecord, "the key is empty"),
    "a bool for a key": (line(key=True), InvalidRecord, "not bool: True"),
    "a float for a key": (line(key=1.5), InvalidRecord, "not float: 1.5"),
    "a list for a key": (line(key=[1]), InvalidRecord, "not list"),
    "a key of 10 MB": (line(key="x" * 10_000_000), InvalidRecord, "10,000,002 bytes long"),
}


@pytest.mark.parametrize("kind", BAD_LINES)
def test_a_bad_line_stops_the_run_with_its_place_and_once_mended_nothing_is_missing(
    tmp_path: Path, kind: str
) -> None:
    bad, error, reason = BAD_LINES[kind]
    options = {"slots": SLOTS, "epoch_records": EPOCH_RECORDS}
    write_lines(tmp_path, bad)
    with pytest.raises(error) as stopped:
        run_local(shop(tmp_path), tmp_path / "checkpoint", **options)
    said = str(stopped.value)
    assert reason in said, said
    assert "'events'" in said and "events.jsonl" in said, "where"
    assert "Fix" in said and 'errors=to("dead")' in said, "what to do next"
    assert len(said) < 1000, "a message, not a dump"
    assert len(rows(tmp_path / "out")) == EPOCH_RECORDS, "what came before is out"
    assert "--accept-changed" in said, "the file is half read"
    write_lines(tmp_path, None)
    mended = (str(tmp_path / "in" / "events.jsonl"),)
    with pytest.raises(SourceError, match="events.jsonl (has|was) .*--accept-changed"):
        run_local(shop(tmp_path), tmp_path / "checkpoint", **options)
    summary = run_local(shop(tmp_path), tmp_path / "checkpoint", accept_changed=mended, **options)
    assert summary.records == len(GOOD) - EPOCH_RECORDS
    check_counts(tmp_path)


@pytest.mark.parametrize("kind", BAD_LINES)
def test_a_bad_line_goes_to_the_dead_letters_with_its_error_and_all_others_count(
    tmp_path: Path, kind: str
) -> None:
    bad, _, reason = BAD_LINES[kind]
    write_lines(tmp_path, bad)
    summary = run_local(
        shop(tmp_path, errors=to("dead")), tmp_path / "checkpoint",
        slots=SLOTS, epoch_records=EPOCH_RECORDS,
    )  # fmt: skip
    assert summary.dead == 1
    check_counts(tmp_path)
    (letter,) = rows(tmp_path / "dead")
    assert reason in letter["error"]
    assert (letter["stream"], letter["epoch"]) == ("events", 2)


@pytest.mark.spark
def test_on_spark_bad_lines_stop_the_run_or_go_to_the_dead_letters(
    spark: SparkSession, tmp_path: Path
) -> None:
    options: dict[str, Any] = {
        "checkpoint": str(tmp_path / "checkpoint"), "spark": spark,
        "slots": SLOTS, "epoch_records": EPOCH_RECORDS,
    }  # fmt: skip
    write_lines(tmp_path, b'{"key": 1.5, "ts": 5000000}\n{"key": "k1", "ts": \n{"ts": 5000000}')
    with pytest.raises(InvalidRecord, match="'Count' cannot take a key.*not float: 1.5"):
        shop(tmp_path).run(**options)
    summary = shop(tmp_path, errors=to("dead")).run(**options)
    assert summary.dead == 3
    check_counts(tmp_path)
    assert len(rows(tmp_path / "dead")) == 3


def test_a_key_function_that_raises_names_its_computation_and_the_record(tmp_path: Path) -> None:
    write_lines(tmp_path, b'{"ts": 5000000}')
    with pytest.raises(UserCodeError) as stopped:
        run_local(shop(tmp_path, key=lambda value: value["key"]), tmp_path / "checkpoint")
    said = str(stopped.value)
    assert "'Count'" in said and "{'ts': 5000000}" in said and 'errors=to("dead")' in said, said


def test_a_column_that_no_record_has_stops_before_anything_is_counted(tmp_path: Path) -> None:
    write_lines(tmp_path, None)
    with pytest.raises((InvalidPipeline, InvalidRecord), match="'kee'.*key, ts"):
        run_local(shop(tmp_path, key="kee"), tmp_path / "checkpoint")
    assert rows(tmp_path / "out") == []


# Damaged checkpoints.

TRADES = make_trades(5, count=160)


def market(where: Path) -> Pipeline:
    return exchange(trades_in(where / "in"), where / "out")


def run_market(where: Path, checkpoint: Path | None = None) -> Any:
    return run_local(market(where), checkpoint or where / "checkpoint", slots=2, epoch_records=20)


def check_market(where: Path, trades: dict[str, Any]) -> None:
    closed, payments, _ = plain_exchange(trades)
    assert bag(rows(where / "out" / "closed")) == bag(closed)
    assert bag(rows(where / "out" / "payments")) == bag(payments)


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A market whose run was stopped after four epochs."""
    write_trades(TRADES, tmp_path / "in")
    place, options = tmp_path / "checkpoint", {"slots": 2, "epoch_records": 20}
    store = DiskStore(place, FILES)
    driver = local_follower(market(tmp_path), store, **options).take_over()
    for _ in range(4):
        driver.step()
    driver.close()
    return tmp_path


def a_segment(where: Path) -> Path:
    return max((where / "checkpoint" / "state" / "Book").glob("*.arrow"))


def last_entry(where: Path) -> Path:
    return max(path for path in (where / "checkpoint" / "log").rglob("*") if path.is_file())


def identity(where: Path) -> Path:
    return where / "checkpoint" / "IDENTITY"


class Bomb:
    """A pickle that would tell if anyone opened it."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (Path.touch, (self.flag,))


Damage = Callable[[bytes, Path], bytes]
DAMAGES: dict[str, Damage] = {
    "truncated": lambda data, where: data[:-10],
    "emptied": lambda data, where: b"",
    "with one bit turned": lambda data, where: data[:99] + bytes([data[99] ^ 4]) + data[100:],
    "replaced by a pickle": lambda data, where: pickle.dumps(Bomb(where / "exploded")),
}


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("which", [a_segment, last_entry])
def test_a_damaged_file_is_refused_by_name_and_put_back_the_run_completes(
    begun: Path, how: str, which: Callable[[Path], Path]
) -> None:
    path = which(begun)
    whole = path.read_bytes()
    path.write_bytes(DAMAGES[how](whole, begun))
    with pytest.raises(CorruptCheckpoint) as refused:
        run_market(begun)
    assert path.name in str(refused.value)
    assert not (begun / "exploded").exists(), "nothing of it was unpickled"
    path.write_bytes(whole)
    run_market(begun)
    check_market(begun, TRADES)


def test_a_segment_that_is_missing_is_named_and_put_back_the_run_completes(begun: Path) -> None:
    path = a_segment(begun)
    path.rename(begun / "aside")
    with pytest.raises(CorruptCheckpoint, match=f"{path.name} is missing"):
        run_market(begun)
    (begun / "aside").rename(path)
    run_market(begun)
    check_market(begun, TRADES)


@pytest.mark.spark
def test_on_spark_a_damaged_segment_is_refused_by_name(spark: SparkSession, begun: Path) -> None:
    path = a_segment(begun)
    whole = path.read_bytes()
    path.write_bytes(pickle.dumps(Bomb(begun / "exploded")))
    options: dict[str, Any] = {
        "checkpoint": str(begun / "checkpoint"), "spark": spark, "slots": 2, "epoch_records": 40,
    }  # fmt: skip
    with pytest.raises(CorruptCheckpoint, match=path.name):
        market(begun).run(**options)
    assert not (begun / "exploded").exists()
    path.write_bytes(whole)
    market(begun).run(**options)
    check_market(begun, TRADES)


@pytest.mark.parametrize("which", [last_entry, identity])
def test_a_checkpoint_of_a_newer_version_is_left_alone(
    begun: Path, which: Callable[[Path], Path]
) -> None:
    path = which(begun)
    whole = path.read_bytes()
    magic, _, rest = whole.split(b" ", 2)
    path.write_bytes(b" ".join([magic, b"99", rest]))
    before = sorted(begun.rglob("*"))
    with pytest.raises(IncompatibleState, match="format 99.*upgrade"):
        run_market(begun)
    assert sorted(begun.rglob("*")) == before, "nothing was changed"
    path.write_bytes(whole)
    run_market(begun)
    check_market(begun, TRADES)


def test_the_checkpoint_of_another_pipeline_is_refused_by_both_names(begun: Path) -> None:
    write_lines(begun / "shop", None)
    with pytest.raises(IncompatibleState, match="'exchange', not 'shop'.*choose another"):
        run_local(shop(begun / "shop"), begun / "checkpoint")
    run_market(begun)
    check_market(begun, TRADES)


def test_a_checkpoint_without_its_identity_is_refused(begun: Path) -> None:
    identity(begun).rename(begun / "aside")
    with pytest.raises(CorruptCheckpoint, match="IDENTITY"):
        run_market(begun)
    (begun / "aside").rename(identity(begun))
    run_market(begun)
    check_market(begun, TRADES)


def test_input_that_was_rewritten_or_taken_away_is_refused_until_it_is_back(begun: Path) -> None:
    path = min((begun / "in").glob("*.jsonl"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    with pytest.raises(SourceError, match=f"{path.name} has shrunk"):
        run_market(begun)
    path.unlink()
    with pytest.raises(SourceError, match=f"{path.name}.* is missing .*put it back"):
        run_market(begun)
    path.write_bytes(whole)
    run_market(begun)
    check_market(begun, TRADES)


# A filesystem that refuses.


@contextmanager
def tiny_filesystem(path: Path, size: str) -> Iterator[Callable[[str], None]]:
    """A small filesystem at `path`; gives a function that resizes it."""
    path.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "headrace-test", str(path)]
    made = subprocess.run(mount, capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"a small filesystem cannot be mounted here: {made.stderr.strip()}")
    try:
        yield lambda size: void(["mount", "-o", f"remount,size={size}", str(path)])
    finally:
        void(["umount", "-l", str(path)])


def void(command: list[str]) -> None:
    subprocess.run(command, check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small filesystem")
@pytest.mark.parametrize(("what", "size"), [("checkpoint", "400k"), ("out", "120k")])
def test_a_full_disk_stops_the_run_and_with_more_room_it_goes_on(
    tmp_path: Path, what: str, size: str
) -> None:
    trades = make_trades(6, count=600)
    write_trades(trades, tmp_path / "in")
    with tiny_filesystem(tmp_path / what, size) as resize:
        with pytest.raises(HeadraceError) as stopped:
            run_market(tmp_path)
        said = str(stopped.value)
        assert "the disk is full: free some space and start again, nothing is lost" in said
        assert str(tmp_path / what) in said
        assert rows(tmp_path / "out" / "closed"), "it had begun"
        resize("50m")
        run_market(tmp_path)
        check_market(tmp_path, trades)


@contextmanager
def another_user() -> Iterator[Path]:
    """A directory that the running user may look into but not write to."""
    root = os.geteuid() == 0
    with tempfile.TemporaryDirectory() as made:
        where = Path(made)
        where.chmod(0o755 if root else 0o555)
        if root:
            os.seteuid(65534)
        try:
            yield where
        finally:
            if root:
                os.seteuid(0)
            where.chmod(0o755)


def test_a_checkpoint_path_without_permission_is_named_with_what_to_do() -> None:
    with another_user() as where:
        p = Pipeline("shop")
        p.read("events", sources.memory([{"key": "a"}]))
        p.compute(Count, inputs={"events": "key"}, outputs="counts")
        with pytest.raises(StoreError) as refused:
            run_local(p, where / "checkpoint")
        said = str(refused.value)
        assert str(where) in said and "permission denied" in said, said
        assert "let this user write there, or choose another path" in said


def test_an_output_path_without_permission_is_named_and_nothing_is_lost() -> None:
    with tempfile.TemporaryDirectory() as mine, another_user() as where:

        def pipeline(output: Path) -> Pipeline:
            p = Pipeline("shop")
            p.read("events", sources.memory([{"key": "a"}]))
            p.compute(Count, inputs={"events": "key"}, outputs="counts")
            p.stream("counts").write(sinks.jsonl(output))
            return p

        if os.geteuid() != os.getuid():
            os.seteuid(0)
            os.chown(mine, 65534, 65534)
            os.seteuid(65534)
        with pytest.raises(HeadraceError) as refused:
            run_local(pipeline(where / "out"), Path(mine) / "checkpoint")
        assert str(where / "out") in str(refused.value)
        assert "ermission denied" in str(refused.value)
        run_local(pipeline(Path(mine) / "out"), Path(mine) / "checkpoint")
        assert rows(Path(mine) / "out") == [{"key": "a", "count": 1}]


def test_a_checkpoint_path_that_is_a_file_is_named(tmp_path: Path) -> None:
    write_trades(TRADES, tmp_path / "in")
    (tmp_path / "checkpoint").write_text("mine")
    with pytest.raises(HeadraceError, match="checkpoint"):
        run_market(tmp_path)
    assert (tmp_path / "checkpoint").read_text() == "mine"
