"""The structures of an epoch: what a plan decides, what tasks report, what a commit says.

All of them are plain data and travel as JSON (log) or MessagePack (rows).
"""

from __future__ import annotations

import msgspec

from headrace.model.source import Range, Seen
from headrace.plan.ring import KeyInterval, Ring
from headrace.plan.watermarks import Histogram, Mark


class ReadTask(msgspec.Struct, frozen=True):
    """One range of one split, read by one task."""

    stream: str
    split: str
    part: int
    range: Range
    mark: Mark
    """The split's mark before the epoch."""

    @property
    def label(self) -> str:
        """The name of this unit of work, the same in every attempt; parts sort in split order."""
        return f"{self.stream}/{self.split}#{self.part:05d}"


class InjectorPlan(msgspec.Struct, frozen=True):
    """An injector in one epoch: every split that it knows, whether read in this epoch or not."""

    marks: dict[str, Mark]
    """Marks before the epoch of all splits that are not finished; idle ones have no bound."""
    newest: int
    """The newest time that any split, including finished ones, had reached."""
    final: bool = False


class WatermarkBound(msgspec.Struct, frozen=True):
    """An upper bound of a computation's input watermark in one epoch, as stated by the plan."""

    cap: int | None = None
    """A fixed bound, set by something that is not read in this epoch. None: see `injectors`."""
    injectors: tuple[str, ...] = ()
    """Without a cap, the bound is how far the splits of these injectors have come when all is read.

    It is () if records themselves move the watermark (a percentile); then the newest time is the
    bound.
    """
    floor: int = 0
    """The newest time that those splits had reached before the epoch."""


class SegmentSlice(msgspec.Struct, frozen=True):
    """A manifest entry: a segment that is valid only inside its interval."""

    segment: str
    interval: KeyInterval
    last_epoch: int
    rows: int
    bytes: int
    bottom: bool = False
    """Whether deletions were dropped from it, because no older segment lies beneath it."""
    at: int = 0
    """The log position in whose entry the segment rides (M1); 0 if it is a file of its own."""


class Plan(msgspec.Struct, frozen=True):
    """Everything that determines the input of an epoch."""

    epoch: int
    wall: int
    seed: int
    fingerprint: str
    reads: list[list[ReadTask]]
    """Per reader task, the ranges it reads."""
    injectors: dict[str, InjectorPlan]
    rings: dict[str, Ring]
    short: bool = False
    """Whether the driver itself reads and routes; the job then begins at level 1."""
    final: bool = False
    based_on: int = 0
    """The log position of the commit that this plan continues."""
    determinants: int = 0
    """The first epoch of the directory for calls that must not be repeated; 0 if there are none."""
    bounds: dict[str, WatermarkBound] = {}
    """Computation -> bound of its watermark; given if calls must not be repeated."""
    given_up: dict[int, int] = {}
    """Epoch -> the wall time of its last voided plan: failures in those plans are void."""

    @property
    def records(self) -> int:
        """About how many records the plan reads."""
        return sum(read.range.records for task in self.reads for read in task)


class SlotBase(msgspec.Struct, frozen=True):
    """What a slot starts from: its manifest entries, and the chain that proves a cache fresh."""

    entries: tuple[SegmentSlice, ...]
    chains: tuple[tuple[int, str], ...]
    """(epoch, chain) of the last commits, newest last: H(chain before, delta)."""


class Determinant(msgspec.Struct, frozen=True, gc=False):
    """The logged outcome of one call to an external system."""

    name: str
    request: bytes
    """A digest of the request."""
    kind: str
    """"answer", "failed" or "uncertain"."""
    value: bytes = b""
    message: str = ""
    again: bool = False
    """Whether the call had no effect, so that it is repeated if its plan is voided."""


class WorkOrder(msgspec.Struct, frozen=True):
    """What the driver sends to every task of an epoch: the plan and the state it starts from."""

    plan: Plan
    checkpoint: str
    ins: dict[str, int]
    """in(e-1) of every computation."""
    outs: dict[str, int]
    """out(e-1) of every host."""
    bases: dict[str, dict[int, SlotBase]]
    outbox: dict[str, list[OutboxFile]]
    """Consumer -> feedback files to deliver in this epoch."""
    answers: dict[str, bytes] | None = None
    """In a replay: label -> the logged answers of external systems, which are not called."""


class OutboxFile(msgspec.Struct, frozen=True):
    """Feedback records for one consumer from one producer, to be read in the next epoch."""

    name: str
    consumer: str
    stream: str
    label: str
    oldest: int
    rows: int
    rides: bool = False
    """Whether its bytes are in the commit's log entry, and not in a file (M1)."""
    at: int = 0
    """In a ledger: the log position of that entry; 0 if it is a file."""


class SlotDelta(msgspec.Struct, frozen=True):
    """The changes of one slot of a computation."""

    segment: str | None
    rows: int = 0
    bytes: int = 0
    next_event_timer: int | None = None
    next_wall_timer: int | None = None
    rides: bool = False
    """Whether the segment's bytes are in the commit's log entry, and not in a file (M1)."""


class StagedFile(msgspec.Struct, frozen=True):
    """Rows that a producer staged for a sink."""

    sink: str
    label: str
    name: str
    digest: str
    rows: int
    weak: bool = False
    own: bool = False
    """Whether it lies in the sink's own store, in its final form (`Sink.own_store`)."""
    size: int = 0
    """How many bytes it has, if it lies there."""
    rides: bool = False
    """Whether its bytes are in the commit's log entry, and not in a file (M1)."""


class Counters(msgspec.Struct):
    """The counters of a task."""

    records: int = 0
    hooks: int = 0
    timers: int = 0
    late: int = 0
    dead: int = 0
    behind: int = 0
    """Records produced behind the output watermark."""
    unfired: int = 0
    """Timers that timers set under the final watermark, and that did not fire."""
    skipped: int = 0
    """About how many records of sources were never read, after crashes (at-most-once)."""
    metrics: dict[str, int] = {}
    dead_of: dict[str, int] = {}
    """Dead letters by the computation or stream whose policy produced them."""
    records_of: dict[str, int] = {}
    """Records that a source read into a stream, or that reached a keyed computation."""

    def add(self, more: Counters) -> None:
        """Adds the counts of `more`."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(more, name))
        for name in _BY_NAME:
            setattr(self, name, summed(getattr(self, name), getattr(more, name)))

    def copy(self) -> Counters:
        """A copy of the present counts."""
        return msgspec.structs.replace(self)

    def since(self, before: Counters) -> Counters:
        """What was counted after `before`; names without new counts are left out."""
        found = Counters()
        for name in _NUMBERS:
            setattr(found, name, getattr(self, name) - getattr(before, name))
        for name in _BY_NAME:
            known = getattr(before, name)
            less = {key: n - known.get(key, 0) for key, n in getattr(self, name).items()}
            setattr(found, name, {key: n for key, n in less.items() if n})
        return found


_NUMBERS = ("records", "hooks", "timers", "late", "dead", "behind", "unfired")
_BY_NAME = ("metrics", "dead_of", "records_of")


def summed(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    """The sum of two sets of counts, by name."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in [*one, *other]}


class Report(msgspec.Struct, frozen=True):
    """The report of one unit of work, done or failed, to the driver."""

    label: str
    host: str
    digest: str
    mark: Mark
    saw: dict[str, str]
    """The digest of every producer whose output this unit consumed."""
    slot: int | None = None
    input_mark: int | None = None
    delta: SlotDelta | None = None
    staged: list[StagedFile] = []
    outbox: list[OutboxFile] = []
    riders: dict[str, bytes] = {}
    """Name -> bytes of output that is too small for a file: the commit carries it (M1)."""
    counters: Counters = msgspec.field(default_factory=Counters)
    newest: int = 0
    determinants: bytes = b""
    """Answers of external systems, logged with the commit; packed, as the driver reads none."""
    input: str = ""
    """Of a reader: the digest of all bytes that it read."""
    seen: dict[str, Seen] = {}
    """Of a reader: what identifies the input that it read, to detect a change."""
    error: str | None = None
    """The class name and message of an error, if the work failed."""
    message: str = ""


class EndOfInput(msgspec.Struct, frozen=True):
    """Sent by a producer to every slot that it feeds: it is done, and this is what it made."""

    label: str
    host: str
    digest: str
    mark: Mark
    blobs: int
    """How many blobs it sent to this slot."""
    histograms: dict[str, Histogram] = {}
    """Consumer with a percentile watermark -> timestamps of all records made for it."""


class SplitState(msgspec.Struct, frozen=True):
    """How far a split has been read."""

    position: int
    mark: Mark
    finished: bool = False
    news: int = 0
    """Wall time of the last plan that read from it; idle time is counted from here."""
    seen: dict[str, Seen] = {}
    """What identifies the input that was read, by part; in a commit, that of its epoch only."""


class RecordFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of the record of splits that were read to their end."""

    name: str
    rows: int


class Sealing(msgspec.Struct, frozen=True):
    """Finished splits that leave the ledger with a commit: all that finished before it."""

    file: RecordFile
    replaces: tuple[str, ...] = ()
    """Files whose rows are merged into the new one."""


class Adoption(msgspec.Struct, frozen=True):
    """A merge result that replaces a run of segments with a commit."""

    computation: str
    slot: int
    replaces: tuple[str, ...]
    entry: SegmentSlice
    rides: bool = False
    """Whether the result's bytes are in the commit's log entry, and not in a file (M1)."""


class Commit(msgspec.Struct, frozen=True):
    """The result of an epoch. Once it is in the log, the whole epoch has happened."""

    epoch: int
    ins: dict[str, int]
    outs: dict[str, int]
    splits: dict[str, dict[str, SplitState]]
    rings: dict[str, Ring]
    deltas: dict[str, dict[int, SlotDelta]]
    outbox: list[OutboxFile]
    staged: list[StagedFile]
    counters: Counters
    newest: int
    adoptions: list[Adoption] = []
    digests: dict[str, str] = {}
    """Label -> digest of all output of that unit."""
    inputs: dict[str, str] = {}
    """Label -> digest of all bytes that the unit read from a source."""
    by_wall: tuple[str, ...] = ()
    """Computations whose TTLs expire by the wall clock."""
    determinants: dict[str, bytes] = {}
    """Label -> answers of external systems, in the order of the calls, packed."""
    sealed: dict[str, Sealing] = {}
    """Stream -> the file that holds its finished splits from now on."""
    renamed: dict[str, str] = {}
    """Old name -> new name of computations that kept their state."""
    keys: dict[str, dict[str, str]] = {}
    """Computation -> stream -> what it is keyed by, if that was not known yet."""
    nonce: str = ""
    """Names this commit uniquely, even among commits of the same epoch in copies of the log."""
    follows: str = ""
    """The nonce of the commit before it."""


class Drop(msgspec.Struct, frozen=True):
    """State that a person removed from a stopped pipeline: the changed slots, and their entries."""

    computation: str
    slots: dict[int, tuple[SegmentSlice, ...]]
    reason: str = ""
