"""Opens the stores of the benchmark, each as durable as it can be, on a server of its own."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from headrace.bench.backends.measured import MeasuredBackend, MeasuredSegments, MeasuredStore
from headrace.bench.servers.hbase_server import hbase_server
from headrace.bench.servers.processes import ServerProcess
from headrace.bench.servers.redis_server import redis_server
from headrace.plan.state.choice import check_state
from headrace.state.backends.opening import opener_of
from headrace.store.disk import DiskStore

NAMES = ("segments", "files", "log", "redis", "hbase")


def opened_store(name: str, directory: Path, stack: ExitStack) -> MeasuredStore:
    """A store that holds nothing yet; its server, if it has one, ends with the stack."""
    if name == "segments":
        return MeasuredSegments(directory)
    if name == "files":
        return _opened("files", directory, "every file is synced", fills_unsynced=True)
    if name == "log":
        return _opened("log", directory, "the file is synced with every epoch")
    if name == "redis":
        redis = redis_server()
        stack.callback(redis.process.kill)
        promise = "appendfsync always: on disk with every script"
        return _opened(redis.url(), directory, promise, server=redis.process)
    hbase = hbase_server(quick_start=False)
    stack.callback(hbase.process.kill)
    promise = "FSYNC_WAL: every epoch waits for the log of each region"
    url = hbase.url("state", "?timeout=120s")
    return _opened(url, directory, promise, server=hbase.process)


def _opened(
    state: str,
    directory: Path,
    promise: str,
    *,
    fills_unsynced: bool = False,
    server: ServerProcess | None = None,
) -> MeasuredBackend:
    store = DiskStore(directory)
    opens = opener_of(check_state(state), store)
    if opens is None:
        raise ValueError(f"{state} is no store of its own")
    return MeasuredBackend(
        lambda: opens("bench"), promise, fills_unsynced=fills_unsynced, server=server
    )
