"""The structures of an epoch: what a plan decides, what tasks report, what a commit says.

All of them are plain data and travel as JSON (log) or MessagePack (rows).
"""

from __future__ import annotations

from collections.abc import Iterable

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
        """Names this unit of work, whoever does it; parts sort as they lie in the split."""
        return f"{self.stream}/{self.split}#{self.part:05d}"


class InjectorPlan(msgspec.Struct, frozen=True):
    """An injector in one epoch: every split it knows, read in this epoch or not."""

    marks: dict[str, Mark]
    """Marks before the epoch of all splits that are not finished; idle ones unbounded."""
    newest: int
    """The farthest that any split, finished ones included, had come."""
    final: bool = False


class WatermarkBound(msgspec.Struct, frozen=True):
    """How far a computation's input watermark may come in one epoch, as the plan tells it."""

    cap: int | None = None
    """What it cannot pass: something that bounds it is not read in this epoch. None: see below."""
    injectors: tuple[str, ...] = ()
    """Otherwise no farther than their splits have come when all is read; () where records
    themselves move it (a percentile), and it may come as far as the newest."""
    floor: int = 0
    """How far those had come before the epoch."""


class SegmentSlice(msgspec.Struct, frozen=True):
    """A manifest entry: a segment counts inside its interval only."""

    segment: str
    interval: KeyInterval
    last_epoch: int
    rows: int
    bytes: int
    bottom: bool = False
    """Whether deletions were dropped from it, as nothing older lay beneath."""


class Plan(msgspec.Struct, frozen=True):
    """Everything that decides an epoch's input."""

    epoch: int
    wall: int
    seed: int
    fingerprint: str
    reads: list[list[ReadTask]]
    """Per reader task, the ranges it reads."""
    injectors: dict[str, InjectorPlan]
    rings: dict[str, Ring]
    short: bool = False
    """The driver reads and routes by itself; the job begins at level 1."""
    final: bool = False
    based_on: int = 0
    """The log position of the commit that this plan continues."""
    determinants: int = 0
    """The directory of calls that must not repeat, by its first epoch; 0 where none are made."""
    bounds: dict[str, WatermarkBound] = {}
    """Computation -> how far its time may come; told where calls must not repeat."""
    given_up: dict[int, int] = {}
    """Epoch -> the wall time of its last plan that was voided: what failed in those is void."""

    @property
    def records(self) -> int:
        """About how many records it reads."""
        return sum(read.range.records for task in self.reads for read in task)


class SlotBase(msgspec.Struct, frozen=True):
    """What a slot starts from: its manifest entries, and the chain that proves a cache fresh."""

    entries: tuple[SegmentSlice, ...]
    chains: tuple[tuple[int, str], ...]
    """(epoch, chain) of the last commits, newest last: H(chain before, delta)."""


class Determinant(msgspec.Struct, frozen=True, gc=False):
    """The logged outcome of one call to the outside."""

    name: str
    request: bytes
    """A digest of what was asked."""
    kind: str
    """"answer", "failed" or "uncertain"."""
    value: bytes = b""
    message: str = ""
    again: bool = False
    """Whether nothing came of it, so that it is asked again where its plan is voided."""


_Packed = list[tuple[str, bytes, str, bytes, str]]
_packed_decoder = msgspec.msgpack.Decoder(_Packed)


def pack_determinants(found: Iterable[Determinant]) -> bytes:
    """Determinants as one cell; nothing where there are none."""
    rows = [(d.name, d.request, d.kind, d.value, d.message) for d in found]
    return msgspec.msgpack.encode(rows) if rows else b""


def unpack_determinants(data: bytes) -> list[Determinant]:
    """The determinants in such a cell."""
    return [Determinant(*row) for row in _packed_decoder.decode(data)] if data else []


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
    """Of an epoch that is looked at again: label -> what the outside answered. Nobody calls."""


class OutboxFile(msgspec.Struct, frozen=True):
    """Feedback records for one consumer, from one producer, to be read in the next epoch."""

    name: str
    consumer: str
    stream: str
    label: str
    oldest: int
    rows: int


class SlotDelta(msgspec.Struct, frozen=True):
    """What a slot of a computation changed."""

    segment: str | None
    rows: int = 0
    bytes: int = 0
    next_event_timer: int | None = None
    next_wall_timer: int | None = None


class StagedFile(msgspec.Struct, frozen=True):
    """Rows that a producer staged for a sink."""

    sink: str
    label: str
    name: str
    digest: str
    rows: int
    weak: bool = False


class Counters(msgspec.Struct):
    """What a task counted."""

    records: int = 0
    hooks: int = 0
    timers: int = 0
    late: int = 0
    dead: int = 0
    behind: int = 0
    """Productions behind the output watermark."""
    unfired: int = 0
    """Timers set by timers under the final watermark."""
    skipped: int = 0
    """About how many records of sources were never read, after crashes (at-most-once)."""
    metrics: dict[str, int] = {}
    dead_of: dict[str, int] = {}
    """Dead letters by the computation or stream whose policy sent them aside."""
    records_of: dict[str, int] = {}
    """Records that a source brought into a stream, or that reached a keyed computation."""

    def add(self, more: Counters) -> None:
        """Adds what another counted."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(more, name))
        for name in _BY_NAME:
            setattr(self, name, summed(getattr(self, name), getattr(more, name)))

    def copy(self) -> Counters:
        """The counts as they are now."""
        return msgspec.structs.replace(self)

    def since(self, before: Counters) -> Counters:
        """What was counted after `before` was; what has not been counted since is left out."""
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
    """Counts added up by name."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in [*one, *other]}


class Report(msgspec.Struct, frozen=True):
    """One unit of work, done (or failed): what reaches the driver."""

    label: str
    host: str
    digest: str
    mark: Mark
    saw: dict[str, str]
    """Digest of every producer whose output this one consumed."""
    slot: int | None = None
    input_mark: int | None = None
    delta: SlotDelta | None = None
    staged: list[StagedFile] = []
    outbox: list[OutboxFile] = []
    counters: Counters = msgspec.field(default_factory=Counters)
    newest: int = 0
    determinants: bytes = b""
    """Answers from outside that are logged with the commit, packed: the driver passes them on."""
    input: str = ""
    """Of a reader: the digest of all bytes that it read."""
    seen: dict[str, Seen] = {}
    """Of a reader: what it read was like."""
    error: str | None = None
    """An error's class name and message, where the work failed."""
    message: str = ""


class EndOfInput(msgspec.Struct, frozen=True):
    """What a producer tells every slot it feeds: that it is done, and what it made."""

    label: str
    host: str
    digest: str
    mark: Mark
    blobs: int
    """How many blobs it sent to this slot."""
    histograms: dict[str, Histogram] = {}
    """Consumer with a percentile watermark -> timestamps of all that was made for it."""


class SplitState(msgspec.Struct, frozen=True):
    """How far a split has been read."""

    position: int
    mark: Mark
    finished: bool = False
    news: int = 0
    """Wall time of the last plan that read from it; idleness counts from here."""
    seen: dict[str, Seen] = {}
    """What was read was like, by the names of its parts; in a commit, of this epoch alone."""


class RecordFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of the record of what was read to its end."""

    name: str
    rows: int


class Sealing(msgspec.Struct, frozen=True):
    """Finished splits that leave the ledger with a commit: all that were so before it."""

    file: RecordFile
    replaces: tuple[str, ...] = ()
    """Files whose rows are in the new one."""


class Adoption(msgspec.Struct, frozen=True):
    """A compaction that a commit puts in the place of a run."""

    computation: str
    slot: int
    replaces: tuple[str, ...]
    entry: SegmentSlice


class Commit(msgspec.Struct, frozen=True):
    """What an epoch did: the log's word that it happened, all of it."""

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
    """Label -> digest of all that it made."""
    inputs: dict[str, str] = {}
    """Label -> digest of all bytes that it read from a source."""
    by_wall: tuple[str, ...] = ()
    """Computations whose TTLs are judged by the wall clock."""
    determinants: dict[str, bytes] = {}
    """Label -> answers from outside, in the order of the calls, packed."""
    sealed: dict[str, Sealing] = {}
    """Stream -> where its finished splits are from now on."""
    renamed: dict[str, str] = {}
    """Old name -> new name of computations that brought their state along."""
    keys: dict[str, dict[str, str]] = {}
    """Computation -> stream -> what it is keyed by, where that was not known yet."""
    nonce: str = ""
    """Names this commit: no other has it, not even one of the same epoch in a copy of the log."""
    follows: str = ""
    """The nonce of the commit before it."""


class Drop(msgspec.Struct, frozen=True):
    """State that a person took out of a stopped pipeline: the slots that change, and to what."""

    computation: str
    slots: dict[int, tuple[SegmentSlice, ...]]
    reason: str = ""
