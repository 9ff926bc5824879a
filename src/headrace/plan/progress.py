"""What a run reports: each committed epoch, notices in between, how it ended."""

from __future__ import annotations

import msgspec

from headrace.plan.decisions.transient import Outage
from headrace.store.counts import RequestCounts


class StoreUse(msgspec.Struct, frozen=True):
    """What a run has asked of stores, in the driver and in all workers.

    These are the store of its checkpoint, and those that sinks write to by themselves.
    """

    requests: dict[str, RequestCounts] = {}
    """By purpose: path (epochs wait for these), lease, calls (logged calls), merges, upkeep."""
    near_reads: int = 0
    """How often an executor found an immutable file on its own disk."""
    far_reads: int = 0
    """How often it had to read one from the store."""

    @property
    def reads(self) -> int:
        """How often executors have opened immutable files, where they keep copies."""
        return self.near_reads + self.far_reads

    @property
    def hit_rate(self) -> float:
        """The part of these reads that found a copy; 1 if there were none."""
        return self.near_reads / self.reads if self.reads else 1.0

    @property
    def asked(self) -> int:
        """All requests together."""
        return sum(counts.requests for counts in self.requests.values())

    def __add__(self, other: StoreUse) -> StoreUse:
        requests = dict(self.requests)
        for purpose, counts in other.requests.items():
            requests[purpose] = requests.get(purpose, RequestCounts()) + counts
        return StoreUse(
            requests, self.near_reads + other.near_reads, self.far_reads + other.far_reads
        )

    def __sub__(self, other: StoreUse) -> StoreUse:
        requests = dict(self.requests)
        for purpose, counts in other.requests.items():
            requests[purpose] = requests.get(purpose, RequestCounts()) - counts
        return StoreUse(
            requests, self.near_reads - other.near_reads, self.far_reads - other.far_reads
        )


class Phases(msgspec.Struct, frozen=True, array_like=True):
    """How long each act of an epoch took, in seconds."""

    plan: float = 0.0
    """Deciding the plan and writing it; the plan that a commit carries is written with that."""
    job: float = 0.0
    """The job, all its attempts together."""
    judge: float = 0.0
    """Comparing its reports."""
    commit: float = 0.0
    deliver: float = 0.0
    """Giving rows to sinks."""


class ComputationProgress(msgspec.Struct, frozen=True):
    """One computation, or the stream of a source. Counts are since this run began."""

    records: int = 0
    """Records that reached it, or that were read. Computations without a key do not count them."""
    bytes: int = 0
    """Bytes of records that reached it, as they were measured."""
    busy_s: float = 0.0
    """How long its slots were busy, together, as it was measured."""
    watermark: int = 0
    """Its input watermark, microseconds."""
    state_bytes: int = 0
    """Bytes of its state; known some seconds late."""
    hits: int = 0
    """Objects of keys that were in memory, as it was counted."""
    misses: int = 0
    late: int = 0
    dead: int = 0
    slots: int = 0


class DeadLetter(msgspec.Struct, frozen=True):
    """A dead letter in short."""

    epoch: int
    owner: str
    """The computation, or the stream of a source, whose policy sent it."""
    error: str
    stream: str = ""
    key: str = ""
    value: str = ""


class EpochProgress(msgspec.Struct, frozen=True):
    """One committed epoch, for progress views and tests."""

    pipeline: str
    epoch: int
    records: int
    """Records read from sources in this epoch."""
    records_total: int
    """Records read since this run began."""
    produced: int
    """Rows that went to sinks in this epoch."""
    seconds: float
    """From plan to commit."""
    watermark: int
    """The lowest input watermark of all computations, microseconds."""
    newest: int
    """The largest timestamp seen so far, microseconds."""
    state_bytes: int
    late: int
    """Late records since this run began."""
    dead: int
    """Dead letters since this run began."""
    ended: bool = False
    counts: dict[str, int] = {}
    """`ctx.count` metrics since this run began, as computation.metric."""
    store: StoreUse = StoreUse()
    """Requests to stores since this run began."""
    carried: int = 0
    """Records that overloaded slots have carried over into the next epoch."""
    shed: dict[str, int] = {}
    """Stream -> records of it that overloaded slots have dropped since this run began."""
    phases: Phases = Phases()
    attempts: int = 1
    """How often its job was run."""
    voids: int = 0
    """Plans that were voided since this run began."""
    backlog: int | None = None
    """About how many records wait to be read; None if a source cannot say."""
    computations: dict[str, ComputationProgress] = {}
    """Computation, or stream of a source -> its figures."""
    letters: tuple[DeadLetter, ...] = ()
    """Some dead letters of the epoch, as examples; there may be more."""

    def with_figures(
        self,
        *,
        phases: Phases,
        attempts: int,
        voids: int,
        backlog: int | None,
        computations: dict[str, ComputationProgress],
        letters: tuple[DeadLetter, ...],
    ) -> EpochProgress:
        """The same, with what only the driver knows."""
        return msgspec.structs.replace(
            self,
            phases=phases,
            attempts=attempts,
            voids=voids,
            backlog=backlog,
            computations=computations,
            letters=letters,
        )


class CheckpointProgress(msgspec.Struct, frozen=True):
    """The state of one slot became durable: with a commit, or with a checkpoint of several epochs
    (`checkpoint_every=`).

    Times are wall times in seconds.
    """

    pipeline: str
    computation: str
    slot: int
    epoch: int
    """The epoch of the checkpoint: the slot's state up to here is durable."""
    hash: str
    """The digest of what was written."""
    bytes: int
    queued: float
    """When it was asked for; with a commit: when the plan of the epoch was made."""
    started: float
    """When its deltas began to be merged; with a commit: when the job of the epoch began."""
    durable: float
    """When it was on disk, or ready to be written with the entry of the log that it rides in; with
    a commit: when that was written."""
    adopted: float
    """When the log said so: from here on the deltas are not needed."""


class Notice(msgspec.Struct, frozen=True):
    """A message of a run between epochs."""

    pipeline: str
    kind: str
    """away, back (an outage), paused, resumed (by a request), standby, leading, doubt (a likely
    mistake), listener (one has raised), balancer, scaler (a decision about rings, and why),
    overload (a slot gets a limit, or loses it), repair (lost state is made again), reading (a start
    reads stored values, because their type has changed)."""
    text: str


class Status(msgspec.Struct, frozen=True):
    """The state of a run, from `Job.status`. Counts include all runs of the checkpoint."""

    pipeline: str
    phase: str
    """starting, standby, running, paused (by a request), waiting (for the end of an outage, see
    `outage`), ended, or failed (see `error`; `Job.wait` raises it)."""
    running: bool
    epoch: int
    """The last committed epoch."""
    generation: int
    watermark: int
    """The lowest input watermark of all computations, microseconds."""
    records: int
    late: int
    dead: int
    state_bytes: int
    outage: Outage | None = None
    store: StoreUse = StoreUse()
    """Requests to stores since this run began."""
    """What is unavailable, since when, and why, while the run waits for it."""
    error: str | None = None
    carried: int = 0
    """Records that overloaded slots have carried over into the next epoch."""
    shed: dict[str, int] = {}
    """Stream -> records of it that overloaded slots have dropped."""
    limits: dict[str, int] = {}
    """Overloaded slot, as computation/slot -> how many records it processes in an epoch."""
    stuck: bool = False
    """Whether the loop has made no step for longer than `stuck_after=`, outside of jobs."""


def counted(number: int, what: str) -> str:
    """A number with its noun: `1 record`, `2 records`."""
    return f"{number:,} {what}{'s' * (number != 1)}"


_ENDINGS = {
    "end": "all input was read",
    "caught_up": "caught up with its input; a new start with the same checkpoint goes on from here",
    "not_needed": "the driver that led has ended; this standby was not needed",
    "stopped": "stopped; a new start with the same checkpoint goes on from here",
}


class Totals(msgspec.Struct, frozen=True):
    """The counts of a checkpoint over all its runs."""

    epochs: int
    records: int
    late: int
    dead: int


class RunSummary(msgspec.Struct, frozen=True):
    """How a run ended; `print` shows it as text. Its counts are those of this run."""

    pipeline: str
    epochs: int
    records: int
    late: int
    dead: int
    reason: str
    """"end", "caught_up", "stopped", or "not_needed" for a standby that never led."""
    notes: tuple[str, ...] = ()
    """What is left at the end: timers that did not fire, records in a loop, streams without a
    reader."""
    counts: dict[str, int] = {}
    skipped: int = 0
    """About how many records of sources an at-most-once pipeline has skipped after crashes, in all
    runs of its checkpoint: they are lost."""
    undelivered: int = 0
    """Rows whose delivery was uncertain and that this run did not deliver again."""
    total: Totals | None = None
    """The counts of the checkpoint, including earlier runs."""

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, pace: str = "") -> list[str]:
        """The summary, line by line; `pace` is text about the speed of the run."""
        lines = [
            f"{self.pipeline}: {_ENDINGS.get(self.reason, self.reason)}.",
            f"{counted(self.records, 'record')} in {counted(self.epochs, 'epoch')}{pace}; "
            f"{self.late:,} late, {counted(self.dead, 'dead letter')}.",
        ]
        lines += [f"  {name}: {count:,}" for name, count in sorted(self.counts.items())]
        total = self.total
        if total is not None and total.epochs > self.epochs:
            lines.append(
                f"In all runs of this checkpoint: {counted(total.records, 'record')} in "
                f"{counted(total.epochs, 'epoch')}; {total.late:,} late, "
                f"{counted(total.dead, 'dead letter')}."
            )
        lines += [f"Note: {note}" for note in self.notes]
        return lines
