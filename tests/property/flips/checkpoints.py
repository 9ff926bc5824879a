"""Real checkpoints on a disk, with every kind of file, stopped in the middle of a delivery.

What they hold: the log with snapshots and shards, segments (as files or as riders), rings as a
whole, feedback in the outbox, rows for a sink that is one epoch behind, logged calls, the record of
finished splits, a savepoint, requests and answers, a pin, a lease.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.unit.engine.support import Clock, Crash, Local, die, run

from headrace import (
    Checkpoint,
    Computation,
    Map,
    Pipeline,
    failpoints,
    service,
    sinks,
    sources,
    state,
)
from headrace.control.request import encode_request
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.setup import Setup
from headrace.engine.leading.lease import Lease, write_lease
from headrace.engine.upkeep.pins import HeldPin
from headrace.limits import Limits
from headrace.log import rings
from headrace.plan.control import ControlRequest
from headrace.plan.options import Options
from headrace.store.disk import DiskStore
from headrace.system import Filesystem, System

SPLITS, LINES = 12, 3
KEEPS = {
    "snapshot_every_epochs": 4,
    "shard_slots": 2,
    "log_directory_entries": 8,
    "ring_steps_max": 1,
    "sealed_rows_min": 2,
    "merge_segments_min": 3,
    "collect_every_epochs": 3,
    "determinants_epochs": 4,
    "sink_upkeep_epochs": 4,
}


class Unsynced(Filesystem):
    """A disk that is not asked to sync: nothing here loses power."""

    def fsync(self, descriptor: int) -> None:
        """Does nothing."""


def system(*, rides: bool) -> System:
    """Surroundings with small limits; with `rides`, small files ride in the log."""
    more = {} if rides else {"ride_bytes_max": 0}
    return System(Unsynced(), Limits(**KEEPS, **more))


@service(timeout="60s")
def notify(text: str) -> str:
    """A call that is made once."""
    return f"told {text}"


class Walk(Computation):
    """Fields, maps, timers, feedback and calls."""

    count: int = state(0)
    told: str = state("")
    seen: Map[str, int] = state()

    def process_record(self, record, ctx):
        n = record.value["n"]
        self.count += 1
        self.seen[f"s{n % 5}"] = n
        ctx.set_timer("later", at=record.timestamp + 40)
        if record.stream == "in" and n % 3 == 0:
            self.told = ctx.call(notify, f"{ctx.key} {n}")
        if n > 2:
            ctx.produce({"k": record.value["k"], "n": n // 3, "t": record.timestamp}, to="again")
        ctx.produce({"k": record.value["k"], "n": n, "count": self.count}, to="out")

    def process_timer(self, timer, ctx):
        self.seen.pop("s1", None)
        ctx.produce({"k": ctx.key, "timer": self.count}, to="out")


class Total(Computation):
    """A second level."""

    total: int = state(0)

    def process_record(self, record, ctx):
        self.total += record.value.get("n", 1)


def write_input(folder: Path) -> None:
    """The files that the pipeline reads."""
    folder.mkdir()
    for split in range(SPLITS):
        with (folder / f"{split:03d}.jsonl").open("w") as out:
            for line in range(LINES):
                n = split * LINES + line
                out.write(json.dumps({"k": f"k{n * 7 % 11}", "n": n, "t": n}) + "\n")


def pipeline(root: Path) -> Pipeline:
    """The pipeline on the files of a directory."""
    p = Pipeline("flipped")
    p.stream("again", feedback=True)
    p.read("in", sources.jsonl(str(root / "in" / "*.jsonl"), timestamp="t"))
    p.compute(Walk, inputs={"in": "k", "again": "k"}, outputs={"again": "again", "out": "out"})
    p.compute(Total, inputs={"out": "k"})
    p.stream("out").write(sinks.jsonl(str(root / "out")))
    return p


def driver(root: Path, *, rides: bool) -> Driver:
    """A driver that has taken over the checkpoint of a directory."""
    topology = pipeline(root).freeze()
    store = DiskStore(root / "state", system(rides=rides))
    options = Options(
        slots=2, epoch_records=4, background=False, until="end", retain_epochs=4, listens=True
    )
    setup = Setup(
        topology, "code", store, Local(topology, store), options, clock=Clock(), seeds=lambda: 7
    )
    return Follower(setup).take_over()


def ask(led: Driver, verb: str, **arguments: Any) -> None:
    """A request of the leader's own process."""
    name = verb + str(arguments)
    led.control.own(ControlRequest("", name, name, verb, arguments))


def build(root: Path, *, rides: bool) -> None:
    """Runs the first half, and dies after a commit, before its rows are delivered."""
    write_input(root / "in")
    led = driver(root, rides=rides)
    run(led, 3)
    ask(led, "rescale", computation="Walk", slots=3)
    run(led, 2)
    ask(led, "savepoint", name="kept")
    run(led, 2)
    store = led.store
    for number, verb in enumerate(("resume", "resume"), start=1):
        request = ControlRequest(led.checkpoint, f"{verb}{number}", f"{number}", verb)
        store.write(f"control/{number:020d}", encode_request(request))
        if number == 1:
            led.control.poll(now=True)
    failpoints.arm("before-delivery", die)
    try:
        run(led)
        raise AssertionError("it was to die")
    except Crash:
        failpoints.disarm("before-delivery")
    write_lease(store, Lease(led.log.generation, 3, 1.0, led.ledger.epoch))
    HeldPin(store, "a reader", ["state/nothing"], seconds=1e9).keep()


def files_of(root: Path) -> list[str]:
    """Every file of the checkpoint that has bytes, by its name in the store."""
    state = root / "state"
    found = [path for path in sorted(state.rglob("*")) if path.is_file() and path.stat().st_size]
    return [str(path.relative_to(state)) for path in found]


def look(root: Path, *, rides: bool) -> dict[str, Any]:
    """Everything that readers from outside find."""
    rings._decoded.clear()  # a ring that this process knows would hide damage to its file
    store = DiskStore(root / "state", system(rides=rides))
    found: dict[str, Any] = {}
    for at in (None, "kept"):
        checkpoint = Checkpoint(store, at=at)
        found[f"at {at}"] = {
            name: sorted(map(repr, checkpoint.scan(name))) for name in checkpoint.computations
        }
    return found


def finish(root: Path, *, rides: bool) -> dict[str, Any]:
    """What there is when a new driver has run to the end: state, and rows in the sink."""
    rings._decoded.clear()
    led = driver(root, rides=rides)
    try:
        run(led)
    finally:
        led.close()
    rows = sorted(line for path in (root / "out").glob("epoch=*/*") for line in path.open())
    return {"state": look(root, rides=rides), "rows": rows}


def outcome(act: Callable[[], Any]) -> Any:
    """What an act gives, or its error."""
    try:
        return act()
    except Exception as error:
        return error


def copy_of(root: Path, to: Path) -> Path:
    """A copy of a directory, in the place of an earlier one: sinks remember where they are."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(root, to, copy_function=_copy)
    return to


def _copy(old: str, new: str) -> None:
    with open(old, "rb") as given, open(new, "wb") as out:
        out.write(given.read())
    times = os.stat(old)
    os.utime(new, ns=(times.st_atime_ns, times.st_mtime_ns))
