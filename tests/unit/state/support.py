"""Small makers for tests of state: cells, segments in a store, views over entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from tests.unit.rings import FIRST, WHOLE

from headrace.log import paths
from headrace.log.content import digest_of
from headrace.model.values.keys import encode_key, hash_key
from headrace.model.values.time import END
from headrace.plan.rings.classes import SegmentSlice, SlotClass
from headrace.plan.rings.ring import SlotRecords
from headrace.state.backend import Stored
from headrace.state.segment import FIELD, TIMER, Cell, encode_segment
from headrace.state.view import SlotView, open_view
from headrace.store.store import Store


def field(
    key: object, name: str, value: bytes | None, *, time: int = 0, expires: int = END
) -> Cell:
    """A version of a field; None deletes it."""
    encoded = encode_key(key)
    return Cell(
        hash_key(encoded), encoded, FIELD, name, b"", value or b"", time, expires, 1, value is None
    )


def timer(key: object, tag: bytes, at: int | None, *, hold: int | None = None) -> Cell:
    """A version of an event-time timer; None cancels it."""
    encoded = encode_key(key)
    time, held = (0, END) if at is None else (at, at if hold is None else hold)
    return Cell(
        hash_key(encoded), encoded, TIMER, "event", tag, b"", time, held, 1, at is None
    )  # fmt: skip


def written(
    store: Store,
    cells: Iterable[Cell],
    epoch: int,
    *,
    of: int | None = None,
    last_epoch: int | None = None,
    label: str = "C/0",
) -> SegmentSlice:
    """A segment in a store, and its manifest entry."""
    cells = list(cells)
    data = encode_segment(cells)
    file = paths.content_name(epoch, label, digest_of(data), ".arrow")
    name = f"{paths.state_directory('C')}/{file}"
    store.write(name, data)
    return SegmentSlice(name, last_epoch or epoch, len(cells), len(data), of=of)


def view_of(
    store: Store,
    entries: Sequence[SegmentSlice],
    records: SlotRecords = WHOLE,
    classes: Sequence[SlotClass] = FIRST,
) -> SlotView:
    """A view over entries."""
    return open_view(store, entries, records, classes)


def fetched(view: SlotView, *keys: object, maps: bool = False) -> Sequence[Stored]:
    """A multi-get."""
    encoded = [encode_key(key) for key in keys]
    hashes = np.fromiter(map(hash_key, encoded), np.uint64, len(encoded))
    return view.fetch(encoded, hashes, maps=maps)
