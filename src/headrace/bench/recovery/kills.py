"""`headrace bench recovery`: how long until a job is as fast as before a kill.

Every system runs the same job on a cluster of its own, on this machine, with the same steady input.
When the job is warm, an executor or the driver is killed with SIGKILL. Measured is the time from
the kill until the latency is within 10 % of the latency before.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from headrace.bench.cluster import Cluster, cluster, wait_for
from headrace.bench.frame.bars import Bar, bar_lines
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.recovery import job as recovery_job
from headrace.bench.recovery import join_job
from headrace.bench.recovery.joins import EventFeed, RowPoller
from headrace.bench.recovery.watch import WINDOW, Feed, OutputPoller, latencies, recovery
from headrace.engine.leading.standby import READY
from headrace.errors import HeadraceError

Say = Callable[[str], None]

STAGGERED, AT_ONCE = "executor-kills-staggered", "executor-kills-at-once"
"""Three kills of executors, some seconds apart or together."""
STAGGER_S = 3.0
SYSTEMS = (
    "executor-kill",
    "executor-kill-replicas",
    "spark-native-executor-kill",
    "driver-cold",
    "driver-standby",
    "spark-native-driver-cold",
)
GIVE_UP_S = 180.0
COMMAND = (sys.executable, "-m", "headrace.cli.main")


@dataclass(frozen=True)
class Recovery:
    """The workload."""

    executors: int = 3
    keys: int = 100
    records: int = 200
    """Records in a file."""
    interval_s: float = 1.0
    """The time between two files."""
    standby_interval_s: float = 0.5
    """The same where a standby waits. A job has recovered with some file: with one a second, a
    takeover of little more than a second would count as two."""
    warm_files: int = 15
    """Files before the kill whose latency is the one to return to."""
    query: str = ""
    """A join of Nexmark, q3 or q8, in the place of the count per key."""
    lease_s: float = 1.0
    """How long a standby waits for a sign of life from the leader before it takes over."""


@dataclass(frozen=True)
class RecoveryOutcome:
    """The measurement of one system in one round."""

    recovery_ms: float | None
    latency_ms_before: float
    latencies_ms: list[float]
    equal: bool
    ready_ms: float | None = None
    """From the start of a standby until it said that it is ready to take over."""
    slowest_ms: float | None = None
    """The latency of the slowest file after the kill."""


def run_recovery(
    workload: Recovery, names: Sequence[str], *, rounds: int = 1, say: Say = lambda line: None
) -> dict[str, Any]:
    """Measures the systems one after another, round after round; returns the JSON document."""
    unknown = [name for name in names if name not in (*SYSTEMS, STAGGERED, AT_ONCE)]
    if unknown:
        raise HeadraceError(f"no system is called {unknown[0]!r}; there are {', '.join(SYSTEMS)}")
    machine = describe_machine()
    outcomes: dict[str, list[RecoveryOutcome]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names:
            say(f"round {number + 1}: {name}")
            outcomes[name].append(_measure(workload, name))
            say(f"  {outcomes[name][-1].recovery_ms} ms")
    return document(workload, outcomes, machine, describe_versions())


def document(
    workload: Recovery,
    outcomes: dict[str, list[RecoveryOutcome]],
    machine: dict[str, object],
    versions: dict[str, str],
) -> dict[str, Any]:
    """The JSON document. A round that did not recover in time makes its system's median worse."""
    systems = {name: _numbers(runs) for name, runs in outcomes.items()}

    def ratio(one: str, other: str) -> float | None:
        mine, theirs = (systems.get(name, {}).get("recovery_ms") for name in (one, other))
        return round(mine / theirs, 4) if mine is not None and theirs else None

    pairs = {
        ("driver-standby", "spark-native-driver-cold"): 0.1,
        ("driver-cold", "spark-native-driver-cold"): 1.0,
        ("executor-kill", "spark-native-executor-kill"): 0.7,
        ("executor-kill-replicas", "spark-native-executor-kill"): 0.7,
    }
    ratios = {f"{one} / {other}": ratio(one, other) for one, other in pairs}
    equal = all(run.equal for runs in outcomes.values() for run in runs)
    bars = [Bar(f"{one} / {other}", "at most", limit, ratio(one, other))
            for (one, other), limit in pairs.items()]  # fmt: skip
    return {
        "benchmark": "recovery",
        "workload": asdict(workload),
        "systems": systems,
        "ratios": ratios,
        "results_equal": equal,
        "bars": [bar.as_json(equal) for bar in bars],
        "rounds": {name: [asdict(run) for run in runs] for name, runs in outcomes.items()},
        "machine": machine,
        "versions": versions,
    }


def format_recovery(found: dict[str, Any]) -> str:
    """The document as a table of plain text."""
    lines = [f"{'system':<30}{'recovery':>14}{'latency before':>18}{'slowest after':>17}"]
    for name, numbers in found["systems"].items():
        took = numbers["recovery_ms"]
        shown = f"{took:,.0f} ms" if took is not None else "not in time"
        slowest = numbers["slowest_ms"]
        after = f"{slowest:>14,.0f} ms" if slowest is not None else ""
        lines.append(f"{name:<30}{shown:>14}{numbers['latency_ms_before']:>15,.0f} ms{after}")
        if (ready := numbers["ready_ms"]) is not None:
            lines.append(f"{'  ready after':<30}{ready:>11,.0f} ms")
    lines += ["", f"results equal: {'yes' if found['results_equal'] else 'NO'}"]
    return "\n".join([*lines, *bar_lines(found["bars"])])


def _numbers(runs: Sequence[RecoveryOutcome]) -> dict[str, Any]:
    took = sorted(run.recovery_ms if run.recovery_ms is not None else float("inf") for run in runs)
    middle = took[len(took) // 2]
    before = sorted(run.latency_ms_before for run in runs)[len(runs) // 2]
    ready = sorted(run.ready_ms for run in runs if run.ready_ms is not None)
    slowest = sorted(run.slowest_ms for run in runs if run.slowest_ms is not None)
    return {
        "recovery_ms": None if middle == float("inf") else round(middle, 1),
        "latency_ms_before": round(before, 1),
        "ready_ms": ready[len(ready) // 2] if ready else None,
        "slowest_ms": slowest[len(slowest) // 2] if slowest else None,
    }


class _Job:
    """A driver as a process of its own, with its JVM."""

    def __init__(self, name: str, made: Cluster, where: Path, query: str, *more: str) -> None:
        module = join_job.__name__ if query else recovery_job.__name__
        if name.startswith("spark-native"):
            command = [sys.executable, "-m", module, made.url]
        else:
            target = f"{module}:pipeline"
            command = [*COMMAND, "run", target, "--checkpoint", str(where / "checkpoint")]
            command += ["--master", made.url, "--slots", str(made.executors), *more]
        environment = {
            **os.environ,
            recovery_job.DIRECTORY: str(where),
            join_job.QUERY: query,
            "SPARK_CONF_DIR": str(made.directory / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
        }
        with open(where / "driver.log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def kill(self) -> None:
        """Kills driver and JVM at once, as if their machine had failed."""
        try:
            children = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.Error:
            children = []
        self.process.kill()
        for child in children:
            try:
                child.send_signal(signal.SIGKILL)
            except psutil.Error:
                continue
        self.process.wait()


def _measure(workload: Recovery, name: str) -> RecoveryOutcome:
    with tempfile.TemporaryDirectory(
        prefix="headrace-recovery-", ignore_cleanup_errors=True
    ) as directory:
        where = Path(directory)
        (where / "in").mkdir()
        # A standby driver has executors of its own, waiting.
        room = 2 if name == "driver-standby" else 1
        with cluster(where / "cluster", workload.executors, room=room) as made:
            _write_settings(made)
            return _run(workload, name, made, where)


def _run(workload: Recovery, name: str, made: Cluster, where: Path) -> RecoveryOutcome:
    query = workload.query
    interval_s = workload.standby_interval_s if name == "driver-standby" else workload.interval_s
    feed = Feed(where / "in", interval_s, workload.records, workload.keys)
    watch = OutputPoller(where / "out")
    if query:
        feed = EventFeed(query, where / "in", interval_s, workload.records)
        watch = RowPoller(where / "out")
    more = ["--replicas", "1"] if name == "executor-kill-replicas" else []
    lease = ["--lease", f"{round(workload.lease_s * 1000)}ms"]
    if name == "driver-standby":
        more = lease
    jobs = [_Job(name, made, where, query, *more)]
    ready_ms = None
    try:
        feed.start()
        watch.start()
        _await_visible(watch, 1, where)
        if name == "driver-standby":
            _require_standby()
            started = time.monotonic()
            jobs.append(_Job(name, made, where, query, "--standby", *lease))
            made.ready(2 * workload.executors)
            wait_for(lambda: READY in _said(where), "a standby that is ready", GIVE_UP_S)
            ready_ms = round((time.monotonic() - started) * 1000, 1)
        # Files that waited while Spark started are not measured.
        first = max(watch.visible) + 6
        before = range(first, first + workload.warm_files)
        _await_visible(watch, before[-1], where)
        killed = time.monotonic()
        _kill(name, made, jobs)
        if name == STAGGERED:
            killed = time.monotonic()  # from the last kill on
        if name.endswith("driver-cold"):
            jobs.append(_Job(name, made, where, query))
        _await_recovery(feed, watch, killed, before)
        feed.stop()
        try:
            wait_for(lambda: watch.counts == dict(feed.counts), "all results", GIVE_UP_S)
        except HeadraceError:
            pass  # the document then says that the results are not equal
        equal = watch.counts == dict(feed.counts)
    finally:
        feed.stop()
        watch.stop()
        for job in jobs:
            job.kill()
    seconds, usual = recovery(feed.written, watch.visible, killed, before)
    known = latencies(feed.written, watch.visible)
    return RecoveryOutcome(
        round(seconds * 1000, 1) if seconds is not None else None,
        round(usual * 1000, 1),
        [round(taken * 1000, 1) for taken in known.values()],
        equal,
        ready_ms,
        round(max((known[n] for n in known if watch.visible[n] > killed), default=0.0) * 1000, 1),
    )


def _kill(name: str, made: Cluster, jobs: list[_Job]) -> None:
    """Kills the first driver, or an executor."""
    if "driver" in name:
        jobs.pop(0).kill()
    elif name in (STAGGERED, AT_ONCE):
        for pid in made.pids()[:3]:
            os.kill(pid, signal.SIGKILL)
            if name == STAGGERED:
                time.sleep(STAGGER_S)
    else:
        os.kill(made.pids()[0], signal.SIGKILL)


def _await_visible(watch: OutputPoller, number: int, where: Path) -> None:
    try:
        wait_for(lambda: number in watch.visible, f"results of file {number}", GIVE_UP_S)
    except HeadraceError as error:
        raise HeadraceError(f"{error}. The driver said: {_said(where)[-2000:]}") from None


def _said(where: Path) -> str:
    """What the drivers have written to their log."""
    return (where / "driver.log").read_text(encoding="utf-8", errors="replace")


def _await_recovery(feed: Feed, watch: OutputPoller, killed: float, before: Sequence[int]) -> None:
    """Waits until the job has recovered and has read some more files, or until a timeout."""
    until = time.monotonic() + GIVE_UP_S
    while time.monotonic() < until:
        if recovery(dict(feed.written), dict(watch.visible), killed, before)[0] is not None:
            time.sleep(WINDOW * feed.interval)
            return
        time.sleep(0.1)


def _require_standby() -> None:
    said = subprocess.run([*COMMAND, "run", "--help"], capture_output=True, text=True, check=False)
    if not re.search(r"--standby\b(?!s)", said.stdout):
        raise HeadraceError(
            "this version has no `headrace run --standby`: leave driver-standby out"
        )


def _write_settings(made: Cluster) -> None:
    """Writes the settings for every driver's session, the same for Headrace and for Spark."""
    conf = made.directory / "conf"
    conf.mkdir()
    lines = [f"{name} {value}\n" for name, value in made.settings().items()]
    (conf / "spark-defaults.conf").write_text("".join(lines), encoding="utf-8")
