"""What a slot says of its load: figures of its input, and notes of what was measured.

*Figures* follow from the epoch's input. They travel in reports, and every correct attempt makes the
same ones (K1). *Notes* are measured, so two attempts differ: they are in no report, no shuffled row
and no digest. A note may be lost, doubled, late or of an attempt that was dropped (K2). Nothing but
a later decision about rings depends on either.

*Demand* is made of both by the leader, for the scaler: how long slots would be busy with what
arrives, whether it is processed at once or has to wait.
"""

from __future__ import annotations

import msgspec

from headrace.plan.elastic.sketch import Sketch


class SlotLoad(msgspec.Struct, frozen=True, array_like=True):
    """The load of one slot of a computation in one epoch, as its input decides it (K1)."""

    records: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    rows: int = 0
    """Rows of the delta."""
    bytes: int = 0
    """Bytes of the delta."""
    keys: int = 0
    """How many keys had records."""
    carried: int = 0
    """Records that the slot carried over to the next epoch."""
    sketch: Sketch = Sketch()


class Demand(msgspec.Struct, frozen=True, array_like=True):
    """What the records of a computation take, as they arrive: microseconds of slots per second.

    What a slot needs in every epoch besides its records is not part of it: more slots do not divide
    that. Where input waits, it may be more than slots have.
    """

    all: int
    """All slots together."""
    busiest: int
    """The busiest slot."""
    waiting: int | None = None
    """Microseconds that all slots together would take for the input that waits to be read; None if
    a source cannot say how much there is."""


class LetterNote(msgspec.Struct, frozen=True, array_like=True):
    """A dead letter in short, as people look at it: texts are cut."""

    owner: str
    """The computation, or the stream of a source, whose policy sent it."""
    error: str
    stream: str
    key: str
    value: str


class SlotNote(msgspec.Struct, frozen=True, array_like=True):
    """What was measured while one slot of a computation ran, in one attempt (K2)."""

    epoch: int
    label: str
    wall_us: int
    """How long the slot took."""
    cpu_us: int = 0
    """How much of it was CPU time of its thread."""
    hits: int = 0
    """Segments that were open already."""
    opened: int = 0
    """Segments that had to be opened."""
    fetched: int = 0
    """Bytes of those."""
    pieces: bool = False
    """Of a slot that gets intervals by an announced ring: it has prefetched them (J7). Such a note
    measures nothing."""
    records_us: int = 0
    """How long its hooks took, and what is done for each record and key around them: the part of
    `wall_us` that more slots would divide."""
    objects: tuple[int, ...] = ()
    """Objects of keys that were in memory, that were not, that were prefetched, and prefetched ones
    that were used."""
    bytes_in: int = 0
    """Bytes of records that came for the slot."""
    letters: tuple[LetterNote, ...] = ()
    """Some dead letters of a unit of work, for people. Such a note measures nothing."""

    @property
    def measures(self) -> bool:
        """Whether it says how long a slot took."""
        return not self.pieces and not self.letters
