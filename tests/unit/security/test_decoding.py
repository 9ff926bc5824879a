"""Nothing that is read from a checkpoint, a source or the network is unpickled or evaluated."""

from __future__ import annotations

import pickle
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.ipc
import pytest
from tests.unit.engine.support import driver_of, run
from tests.unit.systems import FILES

import headrace
from headrace import (
    Computation,
    HeadraceError,
    Pipeline,
    failpoints,
    service,
    sinks,
    sources,
    state,
)
from headrace.store.disk import DiskStore
from headrace.system import REAL, System

SOURCE = Path(headrace.__file__).parent

ALLOWED = {
    ("engine/spark/shipping/shipment.py", "cloudpickle"): "ships the pipeline to Spark's workers",
    (
        "engine/spark/shipping/pickling.py",
        "cloudpickle",
    ): "pickles for it, classes of schemas included",
    (
        "engine/spark/tasks.py",
        "cloudpickle",
    ): "opens what engine/spark/shipping/shipment.py pickled, which Spark carries",
    ("engine/spark/held/deltas.py", "pickle"): "packs what tasks are to do with held deltas",
    ("engine/spark/held/functions.py", "pickle"): "opens that in the task, and packs its answer",
    ("engine/upkeep/held.py", "pickle"): "opens the answer, which Spark has carried back",
    (
        "worker/records/key_records.py",
        "pickle",
    ): "copies a key's records in memory, to undo a hook that failed",
}
"""(file, what it uses) -> why. What is unpickled there was pickled by this program, and travels
in memory or inside Spark's own tasks: never through a file of ours."""

_DANGEROUS = re.compile(
    r"^\s*(?:import|from)\s+(pickle|cloudpickle|marshal|shelve|dill|joblib)\b"
    r"|^\s*from pyspark import .*\b(cloudpickle)\b"
    r"|(?<![\w.])(eval|exec|__import__)\("
    r"|\b(yaml\.load|allow_pickle=True)",
    re.MULTILINE,
)

_touched: list[str] = []
_watching = [False]


def _audit(event: str, args: Any) -> None:
    if _watching[0] and event == "pickle.find_class":
        _touched.append(event)


sys.addaudithook(_audit)


class Evil:
    """Runs code where somebody unpickles it."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (Path.touch, (self.mark,))


@pytest.fixture
def watched() -> Iterator[None]:
    _touched.clear()
    _watching[0] = True
    yield
    _watching[0] = False
    failpoints.disarm()
    assert not _touched


def test_code_is_loaded_from_data_only_in_named_places_each_with_a_reason() -> None:
    found = set()
    for file in sorted(SOURCE.rglob("*.py")):
        for match in _DANGEROUS.finditer(file.read_text()):
            found.add((str(file.relative_to(SOURCE)), next(filter(None, match.groups()))))
    assert found == set(ALLOWED)


def test_a_pickle_would_be_noticed(tmp_path: Path) -> None:
    """The traps of this file work."""
    _touched.clear()
    _watching[0] = True
    pickle.loads(pickle.dumps(Evil(tmp_path / "mark")))
    _watching[0] = False
    assert (tmp_path / "mark").exists() and "pickle.find_class" in _touched


# Planted in a checkpoint -----------------------------------------------------


@service
def charge(key: str) -> int:
    return 1


class Loop(Computation):
    """Keeps state, sends itself records, and calls: its checkpoint has something everywhere."""

    n: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        self.n += ctx.call(charge, ctx.key)
        ctx.produce({"k": ctx.key, "left": 3}, to="out")
        if record.value["left"] > 0:
            ctx.produce({"k": ctx.key, "left": record.value["left"] - 1}, to="back")


def pipeline(out: Path) -> Any:
    p = Pipeline("planted")
    p.read("in", sources.memory([{"k": f"{i % 3}", "left": 9} for i in range(30)]))
    p.stream("back", feedback=True)
    p.compute(Loop, inputs={"in": "k", "back": "k"}, outputs=["out", "back"])
    p.stream("out").write(sinks.jsonl(out))
    return p.freeze()


class Dead(BaseException):
    """The driver's process is gone."""


def _die() -> None:
    raise Dead


def _life(directory: Path, epochs: int, system: System) -> None:
    store = DiskStore(directory / "checkpoint", system)
    run(driver_of(pipeline(directory / "out"), store), epochs)


def _planted(file: Path, mark: Path) -> list[bytes]:
    """Ways to plant a pickle: in place of a file, and behind its head."""
    evil = pickle.dumps(Evil(mark))
    head, _, _ = file.read_bytes().partition(b"\n")
    return [evil, head + b"\n" + evil]


@pytest.mark.parametrize(
    ("system", "data"),
    [(FILES, {"state", "outbox", "staged"}), (REAL, set())],
    ids=["files", "riders"],
)
def test_a_pickle_in_any_file_of_a_checkpoint_is_never_run(
    tmp_path: Path,
    watched: None,
    monkeypatch: pytest.MonkeyPatch,
    system: System,
    data: set[str],
) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    origin, mark = tmp_path / "origin", tmp_path / "mark"
    _life(origin, 3, system)
    failpoints.arm("before-delivery", _die)
    with pytest.raises(Dead):
        _life(origin, 3, system)
    failpoints.disarm()
    newest: dict[tuple[str, ...], Path] = {}
    for file in sorted((origin / "checkpoint").rglob("*")):
        if file.is_file():
            newest[(*file.relative_to(origin).parts[1:2], file.suffix)] = file
    kinds = {kind for kind, _ in newest}
    assert {"IDENTITY", "log", "determinants"} | data <= kinds
    refused = set()
    for number, file in enumerate(newest.values()):
        for way, planted in enumerate(_planted(file, mark)):
            copy = tmp_path / f"copy-{number}-{way}"
            shutil.copytree(origin, copy)
            place = copy / file.relative_to(origin)
            place.chmod(0o644)
            place.write_bytes(planted)
            try:
                _life(copy, 1, system)
            except HeadraceError:
                refused.add(file.relative_to(origin).parts[1])
            shutil.rmtree(copy)
            assert not mark.exists(), f"{file} was unpickled"
    assert {"IDENTITY", "log"} | data <= refused


def test_a_pickle_in_a_logged_answer_is_never_run(tmp_path: Path, watched: None) -> None:
    from headrace.causal import web
    from headrace.causal.journal import Journal
    from headrace.model.services import CALL
    from headrace.model.values.codec import Codec

    evil = pickle.dumps(Evil(tmp_path / "mark"))
    with pytest.raises((msgspec.DecodeError, HeadraceError, TypeError, ValueError)):
        web.response(evil)
    with pytest.raises((msgspec.DecodeError, HeadraceError, TypeError, ValueError)):
        Codec(int, where="an answer").decode(evil)
    store = DiskStore(tmp_path)
    store.make_directory("determinants/1")
    journal = Journal(store, "determinants/1")
    made = journal.once("n", b"r", CALL, lambda deadline: _answer(b"\x01"))
    assert made.value == b"\x01"
    for file in (tmp_path / "determinants/1").iterdir():
        file.chmod(0o644)
        file.write_bytes(evil)
    with pytest.raises(HeadraceError):
        journal.once("n", b"r", CALL, lambda deadline: _answer(b"\x02"))
    assert not (tmp_path / "mark").exists()


def _answer(value: bytes) -> Any:
    from headrace.plan.epoch import Determinant

    return Determinant("n", b"r", "answer", value)


def test_a_pickle_in_a_work_order_or_in_arrow_is_never_run(tmp_path: Path, watched: None) -> None:
    from headrace.engine.spark.tasks import _order_decoder
    from headrace.log.content import digest_of
    from headrace.worker.exchange.envelope import decode_report

    evil = pickle.dumps(Evil(tmp_path / "mark"))
    for decode in (_order_decoder.decode, decode_report):
        with pytest.raises(msgspec.DecodeError):
            decode(evil)
    assert digest_of(evil)
    # Old versions of Arrow unpickled a type of this name as soon as they read a schema.
    metadata = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": evil,
    }
    schema = pa.schema([pa.field("value", pa.int64(), metadata=metadata)])
    file = tmp_path / "planted.arrow"
    with pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array([1])], schema=schema))
    assert pa.ipc.open_file(file).read_all()["value"].to_pylist() == [1]
    assert not (tmp_path / "mark").exists()
