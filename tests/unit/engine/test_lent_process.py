"""The process that Spark lends: acknowledgements at once, no collection of all that is alive."""

from __future__ import annotations

import gc
import socket
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from headrace.engine.spark import python_worker


def test_acknowledging_keeps_every_connection_open_and_usable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with (
            socket.create_connection(server.getsockname()) as ours,
            server.accept()[0] as theirs,
        ):
            python_worker.acknowledge_at_once()
            theirs.sendall(b"rows")
            assert ours.recv(4) == b"rows"


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has TCP_QUICKACK")
def test_two_small_writes_no_longer_wait_for_a_delayed_acknowledgement() -> None:
    def seconds(acknowledge: bool) -> float:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname()) as ours,
            server.accept()[0] as theirs,
        ):
            for _ in range(30):  # an exchange: from now on Linux delays acknowledgements
                theirs.sendall(b"x")
                ours.sendall(ours.recv(1))
                theirs.recv(1)

            def write() -> None:
                theirs.sendall(b"c")  # the command
                theirs.sendall(b"r")  # held back by Nagle until the command is acknowledged

            began = time.perf_counter()
            writer = Thread(target=write)
            writer.start()
            assert ours.recv(1) == b"c"
            if acknowledge:
                python_worker.acknowledge_at_once()
            assert ours.recv(1) == b"r"
            writer.join()
            return time.perf_counter() - began

    assert min(seconds(True) for _ in range(5)) < 0.02


def test_what_is_alive_after_a_task_is_left_out_of_collections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(python_worker, "_tasks", 0)
    try:
        python_worker.spare_collection()
        assert gc.get_freeze_count() > 1000
    finally:
        gc.unfreeze()


def tasks(count: int) -> int:
    """Runs the ends of some tasks; after how many of them everything was collected."""
    collections = 0
    for _ in range(count):
        python_worker.spare_collection()
        if not gc.get_freeze_count():
            collections += 1
            gc.collect()  # as Spark does after every task
    return collections


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has run for a while, and whose memory is that of its last collection."""
    monkeypatch.setattr(python_worker, "_tasks", 0)
    monkeypatch.setattr(python_worker, "_settled", None)
    python_worker.spare_collection()
    yield
    gc.unfreeze()


def test_a_process_that_does_not_grow_is_not_collected(settled: None) -> None:
    assert tasks(10 * python_worker.LOOK_EVERY) == 0


def test_cycles_that_user_code_leaves_are_collected_when_the_process_has_grown(
    settled: None,
) -> None:
    alive = weakref.WeakSet[Cycle]()
    for _ in range(4 * python_worker.LOOK_EVERY):
        alive.add(Cycle(1 << 18))
        tasks(1)
    assert len(alive) <= 2 * python_worker.LOOK_EVERY, "64 MB were left in all"


def test_growth_counts_from_the_memory_after_the_last_collection(
    settled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = 100 << 20
    monkeypatch.setattr(python_worker, "memory_bytes", lambda: taken)
    monkeypatch.setattr(python_worker, "_settled", taken)
    assert tasks(python_worker.LOOK_EVERY) == 0
    taken = 150 << 20
    assert tasks(2 * python_worker.LOOK_EVERY) == 1, "it is all alive, so it counts as settled"
    taken = 90 << 20
    assert tasks(python_worker.LOOK_EVERY) == 0
    taken = 150 << 20
    assert tasks(python_worker.LOOK_EVERY) == 1


def test_everything_is_collected_now_and_then_where_the_system_does_not_tell_its_memory(
    settled: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(python_worker, "_MEMORY", str(tmp_path / "missing"))
    assert tasks(3 * python_worker.LOOK_EVERY) == 3


class Cycle:
    """An object that only a collection frees."""

    def __init__(self, size: int) -> None:
        self.bytes = bytearray(size)
        self.bytes[::4096] = b"." * len(self.bytes[::4096])  # so that it takes memory
        self.me = self
