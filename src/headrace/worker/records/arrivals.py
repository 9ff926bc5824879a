"""The records that arrive at a slot in an epoch: parcels of all inputs, sorted and grouped by key.

Records are ordered by (order of inputs, label, position). They are sorted here, because the order
in which Spark reads a shuffle is random (protocol B6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.model.values.arrow import python_list, zipped
from headrace.model.values.codec import decode_value, packed, packed_exactly
from headrace.model.values.rows import Rows
from headrace.model.values.time import oldest_on_time
from headrace.worker.records.key_records import InputPart
from headrace.worker.records.sorted_cells import Cells, SortedCells
from headrace.worker.slot_run import Arrival


class Grouped:
    """The records of one input, sorted by key. Records of one key keep their order."""

    def __init__(self, arrival: Arrival) -> None:
        parcel = arrival.parcel
        # Numpy sorts 16-bit numbers with radix sort, which is ten times as fast.
        few = len(parcel.keys) < 2**15
        self._order = np.argsort(
            parcel.codes.astype(np.int16) if few else parcel.codes, kind="stable"
        )
        self._unsorted: Rows = parcel.rows
        self.arrival = arrival
        self._ends = np.cumsum(np.bincount(parcel.codes, minlength=len(parcel.keys))).tolist()
        starts = [0, *self._ends[:-1]]
        self.spans: dict[bytes, tuple[int, int]] = {
            key: (start, end)
            for key, start, end in zip(parcel.keys, starts, self._ends, strict=True)
            if end > start
        }

    @cached_property
    def origins(self) -> list[bytes] | None:
        """The records' origins, if they carry them. Computed on demand, as they are rarely used."""
        cells = self._unsorted.origins
        return None if cells is None else cells.take(pa.array(self._order)).to_pylist()

    def identities(self, key: bytes) -> list[bytes]:
        """The cells of a key's records that end with the records' identities."""
        if key not in self.spans or self.origins is None:
            return []
        start, end = self.spans[key]
        return self.origins[start:end]

    def times(self, key: bytes) -> list[int]:
        """The times of a key's records; empty if the key has none."""
        start, end = self.spans.get(key, (0, 0))
        found: list[int] = self._unsorted.timestamps[self._order[start:end]].tolist()
        return found

    def part(self, key: bytes, shown: Any, before: int) -> InputPart:
        """A key's records in arrival order; `shown` is the key as hooks see it."""
        start, end = self.spans[key]
        times, *cells = self._cells.between(start, end)
        before = 0 if self.arrival.feedback else oldest_on_time(before)
        values = partial(self._values, cells, len(times), shown)
        late = self._late[start:end] if self._late is not None else None
        return InputPart(self.arrival.stream, shown, times, before, values, late)

    @cached_property
    def _late(self) -> list[bool] | None:
        """Which records were late when they arrived; None if that is decided now."""
        arrived = self.arrival.arrived
        if arrived is None:
            return None
        found: list[bool] = arrived.late[self._order].tolist()
        return found

    def places(self, key: bytes) -> list[tuple[int, bool]] | None:
        """The place of arrival of a key's records, and whether they were late then.

        None where both are decided now: places are then positions in the order by key.
        """
        arrived = self.arrival.arrived
        if arrived is None:
            return None
        start, end = self.spans[key]
        chosen = self._order[start:end]
        return list(
            zip(arrived.places[chosen].tolist(), arrived.late[chosen].tolist(), strict=True)
        )

    def values(self, key: bytes, shown: Any) -> list[Any]:
        """The values of a key's records."""
        times, *cells = self._cells.between(*self.spans[key])
        return list(self._values(cells, len(times), shown))

    def raw(self, key: bytes, shown: Any) -> list[msgspec.Raw]:
        """The encoded values of a key's records, for records that are stored again."""
        if self._unsorted.packed is None:
            # The schema turns values back into objects of its class; others decode as they are.
            pack = packed if self._unsorted.schema is not None else packed_exactly
            return [msgspec.Raw(pack(value)) for value in self.values(key, shown)]
        _, cells = self._cells.between(*self.spans[key])
        return [msgspec.Raw(cell) for cell in cells]

    def _values(self, cells: Sequence[Cells], count: int, shown: Any) -> Iterable[Any]:
        """Creates the values of a key's records. Steps that may fail run before the first yield."""
        schema, names = self._unsorted.schema, self._names
        lists = [c if isinstance(c, list) else python_list(c) for c in cells]
        if names is None:
            decode = decode_value if schema is None else schema.decode
            return [decode(cell) for cell in lists[0]]
        if self._key_at is not None:
            lists.insert(self._key_at, [shown] * count)
        if not names:
            return [{} for _ in range(count)]
        if schema is not None and schema.of_class:
            return schema.make(names, lists)
        return zipped(names, lists)

    @cached_property
    def _stored(self) -> Any:
        """The value columns; None if values are packed."""
        rows = self._unsorted
        return rows.stored if rows.encoded == self.arrival.parcel.key_column else rows.columns

    @cached_property
    def _names(self) -> list[str] | None:
        """The names of the value columns."""
        return None if self._stored is None else self._stored.schema.names

    @cached_property
    def _key_at(self) -> int | None:
        """The index of the value column that is the key: all records of a key share its value."""
        names, encoded = self._names, self._unsorted.encoded
        return None if names is None or encoded is None else names.index(encoded)

    @cached_property
    def _cells(self) -> SortedCells:
        """The cells as Python objects, taken from Arrow at first use."""
        rows, stored = self._unsorted, self._stored
        columns = [rows.packed] if stored is None else list(stored.columns)
        if self._key_at is not None:
            del columns[self._key_at]
        return SortedCells(rows.timestamps, columns, self._order, self._ends)


def keys_of(groups: list[Grouped]) -> Iterator[bytes]:
    """Every key that has records, in order of first appearance."""
    seen: dict[bytes, None] = {}
    for group in groups:
        for key in group.spans:
            if key not in seen:
                seen[key] = None
                yield key
