"""The benchmark of state stores, small: every store answers right, and the bars are judged."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from headrace.bench.backends.bytes_written import measure_bytes
from headrace.bench.backends.measured import MeasuredBackend, MeasuredSegments
from headrace.bench.backends.rounds import measure_store
from headrace.bench.backends.run import format_backends, run_backends
from headrace.bench.backends.workload import KeySet, Operations, epochs_of
from headrace.bench.servers.processes import ServerProcess, free_port
from headrace.errors import HeadraceError

SMALL = Operations(keys=80, operations=200, epoch_operations=50)


def test_every_store_gets_the_same_operations_nine_of_ten_writes() -> None:
    shape = Operations(keys=100_000, operations=5_000)
    first, again = list(epochs_of(shape)), list(epochs_of(shape))
    assert first == again and [epoch.number for epoch in first] == [2, 3, 4, 5, 6]
    reads = sum(len(epoch.reads) for epoch in first)
    assert [epoch.number for epoch in epochs_of(shape, 1)] == [7, 8, 9, 10, 11]
    assert 400 < reads < 600 and sum(len(epoch.writes) for epoch in first) > 4_300


def test_a_wrong_answer_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = MeasuredSegments.read
    monkeypatch.setattr(
        MeasuredSegments, "read", lambda self, names, hashes: [None, *real(self, names, hashes)[1:]]
    )
    found = measure_store("segments", KeySet(SMALL), tmp_path)
    assert found["wrong_answers"] == 1 + SMALL.epochs


def test_a_stale_answer_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MeasuredSegments, "write", lambda self, epoch, cells: None)
    written: set[int] = set()
    stale = 0
    for epoch in epochs_of(SMALL):
        stale += sum(key in written for key in epoch.reads)
        written.update(epoch.writes)
    assert stale > 0
    found = measure_store("segments", KeySet(SMALL), tmp_path)
    assert found["wrong_answers"] == stale


def test_stores_without_a_server_are_measured_and_judged(tmp_path: Path) -> None:
    names = ("segments", "files", "log")
    document = run_backends([SMALL], names=names, rounds=2, byte_keys=0, work_dir=tmp_path)
    assert document["results_equal"] and list(document["systems"]) == list(names)
    for system in document["systems"].values():
        assert system["writes_per_s"] > 0 and system["reads_per_s"] > 0
        assert system["keys"]["80"]["wrong_answers"] == 0
        assert len(system["keys"]["80"]["rounds"]["reads_per_s"]) == 2
    assert [bar["name"] for bar in document["bars"]] == [
        "segments / files, writes, 80 keys",
        "segments / files, reads, 80 keys",
        "log / files, writes, 80 keys",
        "log / files, reads, 80 keys",
    ]
    assert "answers right: yes" in format_backends(document)
    assert list(tmp_path.iterdir()) == []


def test_a_store_settles_before_another_has_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    for name in ("settle", "open_again"):
        monkeypatch.setattr(
            MeasuredBackend, name, _noted(done, name, getattr(MeasuredBackend, name))
        )
    run_backends([SMALL], names=("files", "log"), rounds=2, byte_keys=0, work_dir=tmp_path)
    filled, turns = done[:2], done[2:]
    assert filled == ["settle"] * 2
    assert turns == ["open_again", "settle"] * 4


def _noted(done: list[str], name: str, real: Any) -> Any:
    def call(self: MeasuredBackend, *given: Any) -> Any:
        done.append(name)
        return real(self, *given)

    return call


def test_a_server_settles_when_it_uses_no_processor(tmp_path: Path) -> None:
    began = time.monotonic()
    busy = (
        f"import socket, time; s = socket.create_server(('127.0.0.1', {(port := free_port())}))\n"
    )
    busy += "until = time.monotonic() + 1.5\nwhile time.monotonic() < until: pass\ntime.sleep(60)"
    process = ServerProcess("busy", [sys.executable, "-c", busy], port, tmp_path / "log")
    try:
        MeasuredBackend(Mock(), "none", server=process).settle()
        assert time.monotonic() - began > 1.5
        process.kill()
        process.settle()  # one that has ended has nothing to do
    finally:
        process.kill()


def test_a_bar_without_its_store_is_not_reached(tmp_path: Path) -> None:
    document = run_backends([SMALL], names=("segments",), byte_keys=0, work_dir=tmp_path)
    assert not any(bar["reached"] for bar in document["bars"])
    assert "not measured" in format_backends(document)


def test_an_unknown_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="no state store 'rocks'"):
        run_backends([SMALL], names=("rocks",), work_dir=tmp_path)


def test_an_epoch_writes_what_changed_and_compaction_bounds_the_rest(tmp_path: Path) -> None:
    found = measure_bytes(5_000, entries=3_000, epochs=25, work_dir=tmp_path)
    assert 0.004 < found["delta"] <= 0.03
    assert found["entry_bytes"] < 1_000
    assert 1 <= found["total"] < 2
