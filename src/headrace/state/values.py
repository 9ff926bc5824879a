"""Reads stored values as they lie, in segments and in state stores, without keys or a ring.

For questions about all that is stored: whether code can read it, and what is missing. Values that
newer ones have replaced may be among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from headrace.errors import CorruptCheckpoint, DeltaMissing
from headrace.plan.rings.classes import SegmentSlice
from headrace.state.backend import StateBackend, StateView
from headrace.state.segment import ENTRY, FIELD, Segment
from headrace.store.store import Store

_AT_ONCE = 1000


def lost_of(store: Store, entries: Iterable[SegmentSlice]) -> list[str]:
    """The segments that were only written, and are missing or torn (M4)."""
    return [
        each.segment for each in entries if each.written and _open_unless_lost(store, each) is None
    ]


def open_all(store: Store, entries: Iterable[SegmentSlice]) -> dict[str, Segment]:
    """The segments by name. DeltaMissing names all that are lost, not only the first (M4)."""
    opened = {entry.segment: _open_unless_lost(store, entry) for entry in entries}
    found = {name: segment for name, segment in opened.items() if segment is not None}
    if len(found) < len(opened):
        raise DeltaMissing(", ".join(name for name in opened if name not in found))
    return found


def stored_values(
    store: Store, entries: Iterable[SegmentSlice], field: str, *, is_map: bool
) -> Iterator[tuple[bytes, bytes]]:
    """(entry, value) of a map's entries in these segments, or (b"", value) of a field.

    A segment that was only written and is lost is left out: it is made again when it is needed.
    """
    for entry in entries:
        segment = _open_unless_lost(store, entry)
        if segment is None:
            continue
        rows = np.flatnonzero(segment.kinds == (ENTRY if is_map else FIELD))
        for first in range(0, len(rows), _AT_ONCE):
            names = ("field", "entry", "value", "tombstone")
            columns = segment.rows(rows[first : first + _AT_ONCE], *names)
            for name, cell, value, gone in zip(*columns, strict=True):
                if name == field and not gone:
                    yield cell, value


def unless_lost(store: Store, entries: Iterable[SegmentSlice]) -> list[SegmentSlice]:
    """Those that can be opened, without those that were only written and are lost."""
    return [each for each in entries if _open_unless_lost(store, each) is not None]


def living_entries(view: StateView, field: str) -> Iterator[bytes]:
    """Values of all entries that a map of this name has now, of all keys."""
    scanned = view.scan()
    while part := sorted(set(islice(scanned, _AT_ONCE))):
        hashes = np.array([where for where, _ in part], np.uint64)
        for entries in view.entries(field, [key for _, key in part], hashes).values():
            yield from (value for value in entries.values() if value is not None)


def applied_values(
    backend: StateBackend, computation: str, field: str, *, is_map: bool
) -> Iterator[tuple[bytes, bytes]]:
    """The same in a state store; in no order."""
    scanned = backend.scan(computation)
    while part := sorted(set(islice(scanned, _AT_ONCE))):
        keys = [key for _, key in part]
        hashes = np.array([where for where, _ in part], np.uint64)
        if is_map:
            maps = backend.read_entries(computation, field, keys, hashes)
            cells = [named for each in maps for named in each.items()]
        else:
            fields = backend.read_fields(computation, keys, hashes)
            cells = [(b"", each[field]) for each in fields if field in each]
        yield from ((entry, cell.value) for entry, cell in cells if cell.value is not None)


def _open_unless_lost(store: Store, entry: SegmentSlice) -> Segment | None:
    """A segment; None if it was only written, and is lost."""
    try:
        return Segment.open(store, entry.segment, entry.at)
    except CorruptCheckpoint:
        if not entry.written:
            raise
        return None
