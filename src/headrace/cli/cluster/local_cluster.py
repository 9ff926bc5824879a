"""A standalone cluster that outlives the command which starts it, and its directory.

The directory holds a record, the logs and the files of executors. The record is written before
anything is started, and every process of the cluster has the record's mark in its command line: so
whatever a crash leaves behind is found by the next command, and nothing else is.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from headrace.bench.servers.processes import free_port
from headrace.bench.servers.standalone import daemon_command, daemon_environment
from headrace.cli.cluster.processes import ProcessSeen, family, processes
from headrace.errors import HeadraceError

RECORD = "cluster.json"
START_S = 300.0
END_S = 10.0
_EXECUTOR = "CoarseGrainedExecutorBackend"
_WORKER = "org.apache.spark.deploy.worker.Worker"


class ClusterRecord(msgspec.Struct, frozen=True):
    """What was asked for, and where it is."""

    mark: str
    url: str
    page: str
    executors: int
    cores: int
    memory: str


def default_directory() -> Path:
    """Where the cluster of this user lies, if no directory is given."""
    return Path(tempfile.gettempdir()) / f"headrace-cluster-{os.getuid()}"


def record_in(directory: Path) -> ClusterRecord | None:
    """The record of a cluster that was started here and not stopped."""
    try:
        found = os.lstat(directory)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise HeadraceError(f"{directory} is not a directory of yours: name another with --dir")
        text = (directory / RECORD).read_bytes()
        return msgspec.json.decode(text, type=ClusterRecord)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise HeadraceError(f"{directory / RECORD} is damaged: {error}") from error


def members(record: ClusterRecord) -> list[ProcessSeen]:
    """The processes of a cluster: master, workers, executors, and their Python workers."""
    return family(record.mark, processes())


def workers_in(found: list[ProcessSeen]) -> int:
    """How many workers are among the processes."""
    return sum(_WORKER in each.command for each in found)


def executors_in(found: list[ProcessSeen]) -> int:
    """How many executors are among the processes."""
    return sum(_EXECUTOR in each.command for each in found)


def start(directory: Path, executors: int, cores: int, memory: str) -> ClusterRecord:
    """Starts a master and one worker per executor, and waits until all are registered."""
    known = record_in(directory)
    if known is not None:
        if members(known):
            raise HeadraceError(
                f"a cluster runs already, at {known.url}: `headrace cluster stop --dir "
                f"{directory}` ends it, and --dir names another place for a second one"
            )
        stop(directory, known)  # it has died: its files are left
    port = free_port()
    record = ClusterRecord(
        f"-Dheadrace.cluster={secrets.token_hex(8)}", f"spark://127.0.0.1:{port}",
        f"http://127.0.0.1:{(page := free_port())}", executors, cores, memory,
    )  # fmt: skip
    _make(directory, record)
    try:
        master = _launch(directory, record, "master", page, "--port", str(port))
        _wait(directory, "master", "New state: ALIVE", master)
        names = [f"worker-{number}" for number in range(1, executors + 1)]
        launched = [_worker(directory, record, name) for name in names]
        for name, process in zip(names, launched):
            _wait(directory, name, "Successfully registered", process)
    except BaseException:
        stop(directory, record)
        raise
    return record


def stop(directory: Path, record: ClusterRecord, end_s: float = END_S) -> int:
    """Ends all processes of a cluster and deletes its directory; returns how many there were.

    Workers end their executors when they are asked to end. What is left is killed.
    """
    ended: set[tuple[int, str]] = set()
    asked: set[tuple[int, str]] = set()
    until = time.monotonic() + end_s
    while True:
        seen = processes()
        ended |= {each.identity for each in family(record.mark, seen)}
        # A descendant whose parent has ended is in the family no more, and may run still.
        found = [each for each in seen if each.identity in ended]
        if not found:
            break
        last = time.monotonic() > until
        for each in found:
            if last or (record.mark in each.command and each.identity not in asked):
                _signal(each.pid, signal.SIGKILL if last else signal.SIGTERM)
                asked.add(each.identity)
        time.sleep(0.05)
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        raise HeadraceError(f"{directory} could not be deleted; the cluster has ended")
    return len(ended)


def _make(directory: Path, record: ClusterRecord) -> None:
    """The directory with its record, readable by this user alone; what exists is not touched."""
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError as error:
        if any(directory.iterdir()):
            raise HeadraceError(
                f"{directory} holds files, and no cluster: name a new directory with --dir"
            ) from error
    except OSError as error:
        raise HeadraceError(f"{directory} cannot be made: {error}") from error
    (directory / RECORD).write_bytes(msgspec.json.encode(record))


def _launch(
    directory: Path, record: ClusterRecord, name: str, page: int, *arguments: str
) -> subprocess.Popen[bytes]:
    """Starts a process of the cluster in a session of its own: a Ctrl-C here does not reach it."""
    command = daemon_command(name.partition("-")[0], *arguments, page=page)
    environment = daemon_environment(directory, f"{record.mark} -XX:-UsePerfData")
    with open(directory / f"{name}.log", "wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
            cwd=directory, start_new_session=True,
        )  # fmt: skip


def _worker(directory: Path, record: ClusterRecord, name: str) -> subprocess.Popen[bytes]:
    room = ("--cores", str(record.cores), "--memory", record.memory)
    return _launch(
        directory, record, name, 0, *room, "--work-dir", str(directory / name), record.url
    )


def _wait(directory: Path, name: str, words: str, process: subprocess.Popen[bytes]) -> None:
    log = directory / f"{name}.log"

    def said() -> str:
        return log.read_text(encoding="utf-8", errors="replace")

    _until(lambda: words in said() or process.poll() is not None, f"Spark's {name}")
    if words not in said():
        last = " / ".join(said().strip().splitlines()[-3:])
        raise HeadraceError(f"Spark's {name} did not start: {last or 'it did not say why'}")


def _until(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + START_S
    while not condition():
        if time.monotonic() > until:
            raise HeadraceError(f"{what} has not started within {START_S:.0f} s")
        time.sleep(0.05)


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # it has ended by itself
