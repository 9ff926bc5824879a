"""The structures of an epoch: what a plan decides, what tasks report, what a commit says.

All of them are plain data and travel as JSON (log) or MessagePack (rows). Those that come once per
slot are many, and none refers back: Python's cyclic collector does not look at them (`gc=False`).
"""

from __future__ import annotations

import msgspec

from headrace.model.source import Range, Seen
from headrace.plan.counters import Counters
from headrace.plan.elastic.load import SlotLoad
from headrace.plan.interval.state import CommitInterval
from headrace.plan.overload import SlotLimit
from headrace.plan.rings.classes import Came, SegmentSlice, SlotBase, SlotLedger
from headrace.plan.rings.refs import Reclassed, RingRef
from headrace.plan.rings.wanted import Move
from headrace.plan.state.applied import AppliedBase
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


class TableVersion(msgspec.Struct, frozen=True):
    """A version of a lookup table that is refreshed."""

    file: str
    wall: int
    """When it was read: the wall time of the plan that named it first."""


class Plan(msgspec.Struct, frozen=True):
    """Everything that determines the input of an epoch."""

    epoch: int
    wall: int
    seed: int
    fingerprint: str
    reads: list[list[ReadTask]]
    """Per reader task, the ranges it reads."""
    injectors: dict[str, InjectorPlan]
    rings: dict[str, int]
    """Computation -> the version of its ring."""
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
    tasks: int = 1
    """How many tasks a level has; a slot belongs to task (slot mod tasks) at every level (J10)."""
    sketch: bool = False
    """Whether slots report their load, with a sketch of it over their hashes (K1)."""
    limits: dict[str, int] = {}
    """Label of a slot -> how many records of its input it processes at most (P2)."""
    shed: tuple[str, ...] = ()
    """Computations whose limited slots drop the rest of their input; others carry it over."""
    moves: dict[str, tuple[Move, ...]] = {}
    """Computation -> net moves from the ring of the last commit to a new version (J1)."""
    announced: dict[str, tuple[Move, ...]] = {}
    """Computation -> moves of a later plan; new owners prefetch, and nobody is bound (J7)."""
    ring_bases: dict[str, str] = {}
    """Computation -> the even ring that it begins with, or the object that holds a new version."""
    configured: dict[str, int] = {}
    """Computation -> `slots=` of a start that this plan carries out."""
    state: str = ""
    """The state store, as users call it, without user and password; "" for segments."""
    written: bool = False
    """Whether deltas that do not ride are written without a sync, to be durable later (M2)."""
    tables: dict[str, TableVersion] = {}
    """Look-up -> the version of its table that the epoch uses, if it is refreshed."""

    @property
    def records(self) -> int:
        """About how many records the plan reads."""
        return sum(read.range.records for task in self.reads for read in task)


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


FEEDBACK, CARRIED = "feedback", "carried"
"""The kinds of files in the outbox."""


class SlotsStep(msgspec.Struct, frozen=True):
    """What the last commit has changed in the manifests. It stays in the driver."""

    state: tuple[int, int]
    """Which manifests these are in this process, and how often they have changed."""
    epoch: int
    position: int
    deltas: dict[str, dict[int, SlotDelta]]
    changed: dict[str, set[int]] | None
    """Slots that have changed in another way than by a delta; None if that is not known."""
    slots: dict[str, dict[int, SlotLedger]]
    """All manifests, as they are now."""
    chains_kept: int = 0
    """How many chains of each slot the fold keeps."""
    moved: dict[str, list[int]] = {}
    """Slots that the ring change of the open plan gives something else to start from."""


class WorkOrder(msgspec.Struct, frozen=True):
    """What the driver sends to every task of an epoch: the plan and the state it starts from."""

    plan: Plan
    checkpoint: str
    ins: dict[str, int]
    """in(e-1) of every computation."""
    outs: dict[str, int]
    """out(e-1) of every host."""
    bases: dict[str, dict[int, SlotLedger]]
    """Computation -> what each slot of its ring starts from."""
    outbox: dict[str, list[OutboxFile]]
    """Consumer -> the files that this epoch reads: feedback, and records carried over."""
    rings: dict[str, RingRef] = {}
    came: dict[str, dict[int, tuple[Came, ...]]] = {}
    """Computation -> slot -> the classes that this epoch's ring change brings."""
    step: SlotsStep | None = None
    """How the slots came about, if the driver knows it; tasks do not get it."""
    mark_after_s: float = 0.0
    """After which time a slot says how far it has come; 0: never. It decides no output (P1)."""
    eager: bool = False
    """Whether the keys that a slot will soon need are loaded when it comes to a process cold. Like
    the next one, it decides no output."""
    cache_bytes: int | None = None
    """How much memory the objects of keys may take in a process; None: the default."""
    answers: dict[str, bytes] | None = None
    """In a replay: label -> the logged answers of external systems, which are not called."""
    applied: AppliedBase | None = None
    """What the state store has; None: segments hold the state (O5)."""
    repairs: tuple[str, ...] | None = None
    """In a repair: the labels that run. They write their deltas and nothing else (M5)."""
    held_from: int = 0
    """Checkpoints in the log have what executors hold of epochs before this one (M3)."""

    def base(self, computation: str, slot: int) -> SlotBase:
        """What a slot starts from."""
        came = self.came.get(computation, {}).get(slot, ())
        return self.bases[computation][slot].base(came)


def holds_deltas(order: WorkOrder) -> bool:
    """Whether there are deltas that are only written (M2): an epoch starts from them, or some were
    lost, and others may have been written since the epoch that is run again."""
    if order.repairs is not None:
        return True
    slots = (slot for each in order.bases.values() for slot in each.values())
    return any(entry.written for slot in slots for entry in slot.entries)


class OutboxFile(msgspec.Struct, frozen=True, gc=False):
    """Records for one consumer that the next epoch reads: feedback, or carried over by a slot."""

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
    kind: str = FEEDBACK
    since: int = 0
    """Of carried records: the epoch in which the first of them arrived."""
    slots: tuple[int, ...] = ()
    """The slots that it has rows for, under the ring that it was written with (J9)."""
    histogram: Histogram | None = None
    """Of carried records whose consumer has a percentile watermark: their timestamps (D13)."""


class SlotDelta(msgspec.Struct, frozen=True, gc=False):
    """The changes of one slot of a computation."""

    segment: str | None
    rows: int = 0
    bytes: int = 0
    next_event_timer: int | None = None
    next_wall_timer: int | None = None
    rides: bool = False
    """Whether the segment's bytes are in the commit's log entry, and not in a file (M1)."""
    written: bool = False
    """Whether the segment is a file that is not durable yet (M2)."""


class StagedFile(msgspec.Struct, frozen=True, gc=False):
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


class Report(msgspec.Struct, frozen=True, gc=False):
    """The report of one unit of work, done or failed, to the driver."""

    label: str
    host: str
    digest: str
    mark: Mark
    saw: str = ""
    """Of a slot: one digest over the outputs that it consumed (`units.saw_digest`, J11)."""
    slot: int | None = None
    input_mark: int | None = None
    delta: SlotDelta | None = None
    staged: tuple[StagedFile, ...] = ()
    outbox: tuple[OutboxFile, ...] = ()
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
    load: SlotLoad | None = None
    """The load of a slot, if the plan asks for it (K1)."""
    asks: bool = False
    """Whether a hook asked for a checkpoint at the end of this epoch."""
    missing: tuple[str, ...] = ()
    """Segments of its base that it cannot reach and that were only written (M5)."""
    error: str | None = None
    """The class name and message of an error, if the work failed."""
    message: str = ""


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


class Adoption(msgspec.Struct, frozen=True, gc=False):
    """A merge result that replaces a run of segments with a commit."""

    computation: str
    slot: int
    replaces: tuple[tuple[str, int | None], ...]
    """(segment, class that inherited it or None) of each entry of the run."""
    entry: SegmentSlice
    rides: bool = False
    """Whether the result's bytes are in the commit's log entry, and not in a file (M1)."""
    classes: tuple[int, ...] = ()
    """Later classes in which an entry of the run counted: the result counts there too (J5)."""


class Commit(msgspec.Struct, frozen=True):
    """The result of an epoch. Once it is in the log, the whole epoch has happened."""

    epoch: int
    ins: dict[str, int]
    outs: dict[str, int]
    splits: dict[str, dict[str, SplitState]]
    rings: dict[str, int]
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
    steps: dict[str, Reclassed] = {}
    """Computation -> the classes that the plan's moves made; the entry carries touched shards."""
    nonce: str = ""
    """Names this commit uniquely, even among commits of the same epoch in copies of the log."""
    follows: str = ""
    """The nonce of the commit before it."""
    limits: dict[str, SlotLimit] | None = None
    """The limits of slots from the next plan on; None if they do not change (P7)."""
    interval: CommitInterval | None = None
    """What it says about the checkpoint interval; None where every epoch is durable (M)."""


class Drop(msgspec.Struct, frozen=True):
    """State that a person removed from a stopped pipeline: the changed slots, and their entries."""

    computation: str
    slots: dict[int, tuple[SegmentSlice, ...]]
    reason: str = ""
    whole: bool = False
    """Whether it is all state of the computation."""
