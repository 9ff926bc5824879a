"""The process that Spark lends: acknowledgements at once, no collection of all that is alive."""

from __future__ import annotations

import gc
import socket
import time
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


def test_now_and_then_everything_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_worker, "_tasks", python_worker.COLLECT_EVERY - 1)
    gc.freeze()
    python_worker.spare_collection()
    assert gc.get_freeze_count() == 0
