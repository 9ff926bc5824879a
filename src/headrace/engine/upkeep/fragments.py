"""Fragments: all deltas of a slot between two checkpoints, merged into one durable segment (M3).

A fragment is the merge of a run (C2) over exactly the epochs after the last checkpoint, up to the
epoch of this one. It is of that epoch's state and of no later one.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.failpoints import reach
from headrace.log import paths
from headrace.log.content import digest_of, write_named
from headrace.model.values.time import BEGINNING
from headrace.plan.epoch import Adoption
from headrace.plan.rings.classes import SegmentSlice, SlotClass
from headrace.plan.rings.ring import SlotRecords
from headrace.state import compaction
from headrace.state.values import open_all
from headrace.store.counts import MERGES, counted_as
from headrace.store.store import Store


class FragmentJob(NamedTuple):
    """A fragment that is to be made."""

    computation: str
    slot: int
    run: tuple[SegmentSlice, ...]
    """The entries that it replaces."""
    entries: tuple[SegmentSlice, ...]
    """All entries of the slot."""
    classes: tuple[SlotClass, ...]
    records: SlotRecords
    epoch: int
    """The epoch whose number its files bear."""
    room: int
    """Up to this many bytes of it ride in the entry that adopts it."""
    queued_s: float


class _Piece(NamedTuple):
    """One segment of a fragment: a part of the key space."""

    name: str
    digest: str
    rows: int
    size: int
    data: bytes
    """Its bytes, if it rides; b"" if it is a file."""


class Fragment(NamedTuple):
    """A fragment that is durable, or will be with the entry that it rides in."""

    job: FragmentJob
    pieces: tuple[_Piece, ...]
    started_s: float
    durable_s: float

    @property
    def bytes(self) -> int:
        """Its size."""
        return sum(piece.size for piece in self.pieces)

    @property
    def digest(self) -> str:
        """The digest of its bytes; of several pieces, that of their digests."""
        if len(self.pieces) == 1:
            return self.pieces[0].digest
        return digest_of("".join(piece.digest for piece in self.pieces).encode())


def make_fragment(store: Store, job: FragmentJob) -> Fragment:
    """Merges the deltas of a slot, and writes the result durably."""
    began_s = store.system.wall_s()
    opened = open_all(store, job.run)
    found: list[_Piece] = []
    room = job.room
    with counted_as(MERGES):
        parts = compaction.parts_of(store, job.run, job.records, job.classes, opened)
        bottom = compaction.is_bottom(job.run, job.entries)
        # Rows that expire stay: what a retained epoch reads is not looked up here.
        merged = compaction.merge_run(
            parts, bottom=bottom, expired_before=BEGINNING, limits=store.system.limits
        )
        for number, (data, rows) in enumerate(merged):
            digest, size = digest_of(data), len(data)
            label = f"{job.computation}/{job.slot}~{number or ''}"
            last = paths.content_name(job.epoch, label, digest, ".arrow")
            name = f"{paths.state_directory(job.computation)}/{last}"
            rides = size <= room
            if rides:
                room -= size
            else:
                write_named(store, name, data)
            found.append(_Piece(name, digest, rows, size, data if rides else b""))
    reach("after-fragment-write")
    return Fragment(job, tuple(found), began_s, store.system.wall_s())


def adopted(fragment: Fragment) -> list[Adoption]:
    """One adoption per piece; the first one removes the deltas."""
    job = fragment.job
    last = max(entry.last_epoch for entry in job.run)
    bottom = compaction.is_bottom(job.run, job.entries)
    later = compaction.later_classes(job.run, job.classes)
    replaces = tuple((entry.segment, entry.of) for entry in job.run)
    found: list[Adoption] = []
    for piece in fragment.pieces:
        entry = SegmentSlice(piece.name, last, piece.rows, piece.size, bottom)
        found.append(Adoption(job.computation, job.slot, replaces, entry, bool(piece.data), later))
        replaces = ()
    return found


def riding(fragment: Fragment) -> dict[str, bytes]:
    """The pieces of a fragment that have no file: name -> bytes."""
    return {piece.name: piece.data for piece in fragment.pieces if piece.data}
