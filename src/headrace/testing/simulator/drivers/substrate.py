"""The substrate of a simulation: runs an epoch's tasks, each of which may fail as on Spark.

A task may die before, in the middle of or after its user code, and is then run again by another
worker. It may run twice, and both outputs arrive. A lost output is made again, and some consumers
have already seen the first. A zombie runs to its end when the driver no longer waits for it. Rows
arrive in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from headrace.engine.jobs.order_parts import PartsWriter
from headrace.engine.upkeep.held import HeldDeltas
from headrace.limits import Limits
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.stragglers import WorkMark
from headrace.plan.elastic.load import SlotNote
from headrace.plan.epoch import Report, WorkOrder
from headrace.plan.progress import StoreUse
from headrace.plan.units import slot_label, slots_of_task
from headrace.store.memory import MemoryStore
from headrace.system import System
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.drivers.workers import Hook, TaskDied, Worker, Workers
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.faults.measurements import Measurements
from headrace.worker.exchange.envelope import (
    REPORT,
    Envelope,
    decode_report,
    encode_report,
    tasks_at,
)
from headrace.worker.level import run_level
from headrace.worker.overload.marks import write_mark
from headrace.worker.reader import run_reader

Work = Callable[[Worker], list[Envelope]]
Rows = list[Envelope]
Sent = Callable[[Worker], WorkOrder]
"""A work order as a worker gets it."""

BEFORE, DURING, SEALING, AFTER, CALLING = (
    "before its user code",
    "in the middle of its user code",
    "while it seals",
    "after it was done",
    "around a call to the outside",
)
_MOMENTS = (BEFORE, DURING, SEALING, AFTER)
_POINTS = {
    SEALING: ("before-segment-write", "after-segment-write"),
    CALLING: ("after-intent-write", "after-call", "after-result-write"),
}
_OF_INTERVALS = (kinds.WRITTEN_STATE_LOST, kinds.EXECUTORS_LOST)
_TRIES_MAX = 4
_SMALL_PARTS = Limits(order_slots_min=0, order_parts=3, shard_slots=1)


class JobAborted(Exception):
    """Spark gave up a job."""


class SimulatedSubstrate:
    """Runs the tasks of epochs, with faults."""

    spark = None
    parallelism = 2
    grows = False

    def __init__(self, topology: Topology, workers: Workers, chance: Chance) -> None:
        self.topology = topology
        self._workers = workers
        self._executors = workers.executors
        self.held: HeldDeltas | None = workers.executors
        self._chance = chance
        self.measured = Measurements(chance)
        self.zombies: list[tuple[str, Work]] = []
        """Tasks that no driver waits for, but which will still run."""
        self.attempts: dict[tuple[int, str, str], list[Hook]] = {}
        """(epoch, label, digest) -> the hooks that made this output."""
        self.driver: Callable[[], object] = lambda: None
        """Whose job it is."""
        self._whole: set[tuple[object, int, int]] = set()
        """(driver, epoch, wall time) of jobs that ended without any fault."""
        self._torn: set[tuple[object, int, int]] = set()
        """Jobs that have lost an output, or have two different ones."""
        self._dies_at = ""
        self._looks: dict[object, Callable[[], bool]] = {}
        """Driver -> whether it gives up its job."""
        self.time_passes: Callable[[int], None] = lambda microseconds: None
        """Both clocks move on."""
        self.repeats = False
        """Whether two attempts of a task must make the same output."""
        self._writers: dict[object, PartsWriter] = {}
        """Driver -> the parts of its work orders."""
        self._parts = MemoryStore(System(limits=_SMALL_PARTS))
        self._moments: tuple[str, ...] = _MOMENTS
        if topology.uses_services():
            self._moments = (*_MOMENTS, CALLING, CALLING)

    def hooks_of(self, commits: Sequence[dict[str, Any]]) -> list[list[Hook]]:
        """The hooks that made what each of these commits names."""
        found: list[list[Hook]] = []
        for commit in commits:
            epoch, made = commit["epoch"], sorted(commit["digests"].items())
            attempts = (self.attempts.get((epoch, *each), []) for each in made)
            found.append([hook for hooks in attempts for hook in hooks])
        return found

    def reached(self, failpoint: str) -> None:
        """A task is at a failpoint, and may die there."""
        if failpoint == self._dies_at:
            raise TaskDied

    def run(self, task: WorkOrder) -> Sequence[Report]:
        """All reports of an epoch that reach the driver."""
        job = self._job(task)
        if job in self._whole and task.repairs is None:
            raise Violation(
                f"the job of epoch {task.plan.epoch} had all its outputs, each once, and is run "
                "again: slots that lost nothing run twice"
            )
        self._torn.discard(job)
        if task.repairs is not None:
            self._chance.note(f"{len(task.repairs)} units of epoch {task.plan.epoch} run again")
        if self._executors is not None:
            self._executors.begins(task)
        sent = self._send(task)
        rows: Rows = []
        for number in range(len(task.plan.reads)):
            rows += self._unit(task, 0, number, _reading(sent, number))
        for level in range(1, self.topology.depth + 1):
            self._abort_perhaps(task, level)
            arrived: list[Rows] = [[] for _ in range(tasks_at(task.plan, level))]
            for row in rows:
                arrived[row.partition].append(row)
            rows = []
            for number, received in enumerate(arrived):
                self._chance.random.shuffle(received)
                work = _working(sent, level, number, received)
                self._sleep_perhaps(task, level, number, work)
                rows += self._unit(task, level, number, work)
        reports = [decode_report(row.body) for row in rows if row.header.kind == REPORT]
        well = job not in self._torn and all(report.error is None for report in reports)
        if well and task.repairs is None:
            self._whole.add(job)
        return reports

    def _send(self, task: WorkOrder) -> Sent:
        """Sends a work order in parts, however few slots it has; each worker puts it together."""
        writer = self._writers.setdefault(self.driver(), PartsWriter(self._parts))
        sent = writer.split(task)

        def put_together(worker: Worker) -> WorkOrder:
            found = worker.parts.open(self._parts, sent)
            if found.bases != task.bases or found.came != task.came:
                raise Violation(
                    f"a worker put together another work order of epoch {task.plan.epoch} than "
                    f"the driver sent: {found.bases} and not {task.bases}"
                )
            return found

        return put_together

    def give_up_when(self, look: Callable[[], bool]) -> None:
        """The driver that runs gives up its jobs when `look` says so."""
        self._looks[self.driver()] = look

    def _sleep_perhaps(self, task: WorkOrder, level: int, number: int, work: Work) -> None:
        """A slot takes long, and says so; its driver may give up the job, but the task goes on."""
        look = self._looks.get(self.driver())
        if look is None or not self._chance.strikes(kinds.SLOT_SLEEPS, "task"):
            return
        labels = [
            slot_label(name, slot)
            for name in self.topology.levels[level]
            for slot in slots_of_task(task, name, number)
        ]
        if not labels:
            return
        label, records = self._chance.choice(labels), self._chance.random.randint(1, 20)
        seconds = self._chance.random.uniform(3.0, 30.0)
        self._chance.note(f"slot {label} takes {seconds:.0f} s in epoch {task.plan.epoch}")
        self.time_passes(int(seconds * 1e6))
        done = self._chance.random.randint(0, records)
        with self._workers.taken() as worker:
            mark = WorkMark(label, seconds, records, done, task.plan.wall)
            write_mark(worker.store, task.plan.epoch, mark)
        if look():
            self._chance.note(f"the job of epoch {task.plan.epoch} is given up")
            self.zombies.append((f"slot {label} of epoch {task.plan.epoch}", work))
            raise JobAborted("the job was cancelled")

    def excuse(self) -> None:
        """A sink refused an epoch's weak rows before its commit: the job may run again."""
        self._whole.clear()

    def _job(self, task: WorkOrder) -> tuple[object, int, int]:
        return self.driver(), task.plan.epoch, task.plan.wall

    def _compare(self, task: WorkOrder, first: Rows, second: Rows) -> None:
        if _equal(first, second):
            return
        self._torn.add(self._job(task))
        if self.repeats and not _failed(first) and not _failed(second):
            raise Violation(
                f"two attempts of a task of epoch {task.plan.epoch} had the same input, and made "
                "different output"
            )

    def gone(self) -> str | None:
        """Always None: the simulated substrate cannot be lost."""
        return None

    def notes(self) -> Sequence[SlotNote]:
        """What a driver hears of measurements: some notes are lost, doubled, late or of nothing."""
        return self.measured.of(self._workers.take_notes())

    def used(self) -> StoreUse:
        """Nothing: tasks use the store of the driver, which counts for itself."""
        return StoreUse()

    def close(self) -> None:
        """Does nothing: there is nothing to release."""

    def run_zombie(self) -> None:
        """Runs one of the zombies to its end."""
        name, work = self.zombies.pop(int(self._chance.random.random() * len(self.zombies)))
        self._chance.note(f"the zombie of {name} runs to its end")
        try:
            with self._workers.taken() as worker:
                rows = work(worker)
        except Exception:
            return  # No driver waits for it, so its failure is not noticed.
        for row in rows:
            if row.header.kind == REPORT and decode_report(row.body).error == "Fenced":
                self._chance.note(f"the zombie of {name} is turned away")

    # One task -------------------------------------------------------------

    def _unit(self, task: WorkOrder, level: int, number: int, work: Work) -> Rows:
        """The output of a task, as its consumers see it."""
        chance, name = self._chance, f"task {level}/{number} of epoch {task.plan.epoch}"
        if chance.strikes(kinds.TASK_IS_A_ZOMBIE, "task"):
            chance.note(f"{name} hangs; another takes its place")
            self.zombies.append((name, work))
        rows = self._until_done(task, level, number, name, work)
        if chance.strikes(kinds.TASK_RUNS_TWICE, "task"):
            chance.note(f"{name} runs twice, both outputs arrive")
            again = self._until_done(task, level, number, name, work)
            self._compare(task, rows, again)
            return rows + again
        if chance.strikes(kinds.MIXED_ATTEMPTS, "task"):
            chance.note(f"{name} is run again; some consumers have seen its first output")
            again = self._until_done(task, level, number, name, work)
            self._compare(task, rows, again)
            return self._mixed(rows, again)
        if rows and chance.strikes(kinds.OUTPUT_LOST, "task"):
            lost = chance.choice(rows)
            self._torn.add(self._job(task))
            chance.note(f"{name}: its {lost.header.kind} for {lost.partition} is lost")
            return [row for row in rows if row is not lost]
        return rows

    def _until_done(self, task: WorkOrder, level: int, number: int, name: str, work: Work) -> Rows:
        chance, executors = self._chance, self._executors
        for _ in range(_TRIES_MAX):
            moment = ""
            if chance.strikes(kinds.TASK_DIES, "task"):
                moment = chance.choice(self._moments)
                chance.note(f"{name} dies {moment}")
            elif any(chance.strikes(kind, "try") for kind in _OF_INTERVALS):
                moment = AFTER  # its delta stays behind, and another try makes another one
                chance.note(f"{name} dies {moment}")
            home = executors.home(number) if executors is not None and level else None
            try:
                with self._workers.taken(home) as worker:
                    if moment == BEFORE:
                        raise TaskDied
                    if moment == DURING:
                        worker.dies_after = chance.random.randint(0, 3)
                    if moment in _POINTS:
                        self._dies_at = chance.choice(_POINTS[moment])
                    rows = work(worker)
                    if executors is not None:
                        executors.ended(worker.executor, task)
                    self._remember(task, level, rows, worker)
                    if moment == AFTER:
                        raise TaskDied
                    return rows
            except TaskDied:
                continue
            finally:
                self._dies_at = ""
        raise JobAborted(f"{name} failed {_TRIES_MAX} times")

    def _mixed(self, first: Rows, second: Rows) -> Rows:
        """Each consumer sees one of the two outputs."""
        picks: dict[int, Rows] = {}
        for partition in sorted({row.partition for row in (*first, *second)}):
            picks[partition] = self._chance.choice((first, second))
        return [row for rows in (first, second) for row in rows if picks[row.partition] is rows]

    def _remember(self, task: WorkOrder, level: int, rows: Rows, worker: Worker) -> None:
        """Records which hooks made an output, without reports that the task only passes on."""
        mine = self.topology.levels[level] if level else ()
        for row in rows:
            if row.header.kind == REPORT:
                report = decode_report(row.body)
                if report.host in mine:
                    hooks = [hook for hook in worker.hooks if hook.label == report.label]
                    self.attempts[task.plan.epoch, report.label, report.digest] = hooks

    def _abort_perhaps(self, task: WorkOrder, level: int) -> None:
        if self._chance.strikes(kinds.JOB_ABORTED, "level"):
            self._chance.note(f"the job of epoch {task.plan.epoch} is aborted at level {level}")
            raise JobAborted("stage failed too often")


def _equal(first: Rows, second: Rows) -> bool:
    """Whether two attempts made the same output, byte for byte."""
    one, other = (
        sorted((r.partition, r.header.kind, _plain(r)) for r in rows) for rows in (first, second)
    )
    return one == other


def _plain(row: Envelope) -> bytes:
    """The body of a row; where a delta lies is no part of an output (M2)."""
    if row.header.kind != REPORT:
        return row.body
    report = decode_report(row.body)
    if report.delta is None or not report.delta.written:
        return row.body
    return encode_report(replace(report, delta=replace(report.delta, written=False)))


def _failed(rows: Rows) -> bool:
    """Whether an attempt says that it could not do all of its work."""
    reports = (decode_report(row.body) for row in rows if row.header.kind == REPORT)
    return any(report.error is not None for report in reports)


def _reading(sent: Sent, number: int) -> Work:
    return lambda worker: list(run_reader(worker, sent(worker), number))


def _working(sent: Sent, level: int, number: int, received: Rows) -> Work:
    return lambda worker: list(run_level(worker, sent(worker), level, number, received))
