"""A segment: an immutable Arrow IPC file of state changes, sorted by key hash.

Columns: `hash, key, kind, field, entry, value, time, expires, version, tombstone`.
One row is one version of one cell. What a cell is depends on its kind:

| kind    | field        | entry        | time          | expires       |
| ------- | ------------ | ------------ | ------------- | ------------- |
| FIELD   | field's name |              | last write    | end of TTL    |
| ENTRY   | map's name   | map key      | last write    | end of TTL    |
| TIMER   | clock        | tag          | fires at      | holds at      |
| HOLD    |              |              | holds at      | holds at      |
| WAITING | stream       | order        | its timestamp | its timestamp |

Beside the rows lie a Bloom filter of the hashes, the timed cells in order of time, and facts about
all fields (`times/orders.py`, `rows/facts.py`). A segment of format 2 has no facts. One of format 1
has the filter in its metadata, and no orders: they are computed when it is opened.

Invariants: rows are sorted by (hash, key, kind, field, entry), and each such identity is unique.
The file's name ends with a digest that proves its bytes, and no byte is used before it was checked,
unless this process has named these bytes itself: the whole file when it is opened; or, where a few
rows are looked up in a large file, its index when it is opened, then the blocks of what is read
(`log/blocks.py`). A file that fails the check is an error; it is never skipped.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import CorruptCheckpoint, EpochFailed, IncompatibleState
from headrace.log.blocks import BlockCheck
from headrace.log.content import map_named, verify, verify_in_parts
from headrace.model.values.time import END
from headrace.plan.rings.ring import SlotRecords
from headrace.state.bloom import Bloom
from headrace.state.rows.columns import Checked, ColumnReader, bits_of, numbers_of, slices_of
from headrace.state.rows.facts import facts_of
from headrace.state.rows.plain import PlainFields
from headrace.state.times.orders import SegmentIndex, index_in, index_of, with_index
from headrace.store.store import Store

FIELD, ENTRY, TIMER, HOLD, WAITING = 0, 1, 2, 3, 4
FORMAT = 3
"""1: without orders. 2: without facts, and named by the digest of all bytes. Both are read."""
_HEAD_BYTES = 4096
"""The description of the columns, before the rows, is smaller than this."""
SHORT_KEY_BYTES = 16
"""Keys of this length take at most twice the bytes of their hashes, and are checked with them."""
UNFILTERED_ROWS, UNFILTERED_HASHES = 8192, 64
"""A Bloom filter of so few rows, or for so few hashes, takes longer to ask than a search."""

SCHEMA = pa.schema(
    [
        pa.field("hash", pa.uint64(), False),
        pa.field("key", pa.binary(), False),
        pa.field("kind", pa.uint8(), False),
        pa.field("field", pa.string(), False),
        pa.field("entry", pa.binary(), False),
        pa.field("value", pa.binary(), False),
        pa.field("time", pa.int64(), False),
        pa.field("expires", pa.int64(), False),
        pa.field("version", pa.uint16(), False),
        pa.field("tombstone", pa.bool_(), False),
    ]
)


class Cell(NamedTuple):
    """One row to be written to a segment. Tuple order is the order of rows in the file."""

    hash: int
    key: bytes
    kind: int
    field: str
    entry: bytes
    value: bytes
    time: int
    expires: int = END
    version: int = 1
    tombstone: bool = False


COLUMN_BYTES_MAX = 2**31 - 1
"""Arrow uses 32-bit offsets for text and binary columns."""


def encode_segment(
    cells: Sequence[Cell], where: str = "a slot", column_bytes_max: int = COLUMN_BYTES_MAX
) -> bytes:
    """The file of some cells. Errors name `where` the cells come from."""
    ordered = sorted(cells)
    columns = list(zip(*ordered, strict=True)) if ordered else [()] * len(SCHEMA)
    arrays = [pa.array(c, field.type) for c, field in zip(columns, SCHEMA, strict=True)]
    for array, field in zip(arrays, SCHEMA, strict=True):
        # Arrow returns several arrays if the cells do not fit into one.
        if isinstance(array, pa.ChunkedArray) or array.nbytes > column_bytes_max:
            raise EpochFailed(
                f"{where}: {len(cells):,} changes of one epoch have {array.nbytes:,} bytes in "
                f"{field.name!r}, and a segment holds {column_bytes_max:,} at most: run with "
                "smaller epochs (epoch_records=) or more slots, or keep less in one key"
            )
    return encode_batch(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))


def encode_batch(batch: pa.RecordBatch) -> bytes:
    """The file of a batch that is sorted already."""
    hashes = batch.column("hash").to_numpy()
    metadata = {b"headrace": b"segment", b"format": str(FORMAT).encode()}
    out = pa.BufferOutputStream()
    with pa.ipc.new_file(out, SCHEMA.with_metadata(metadata)) as writer:
        writer.write_batch(batch)
    distinct = hashes[np.append(True, hashes[1:] != hashes[:-1])] if len(hashes) else hashes
    return with_index(out.getvalue(), _index_of(batch, Bloom.of(distinct)))


def _index_of(batch: pa.RecordBatch, bloom: Bloom) -> SegmentIndex:
    """The index of a batch's timed cells."""
    kinds = batch.column("kind").to_numpy()
    present = sum(1 << kind for kind in np.flatnonzero(np.bincount(kinds, minlength=1)).tolist())
    rows: dict[str, Any] = {}
    timed = 0
    times, holds = batch.column("time").to_numpy(), batch.column("expires").to_numpy()
    if present >= 1 << TIMER:
        every = np.flatnonzero(kinds >= TIMER).astype(np.uint32)
        timed = len(every)
        chosen = pa.array(every)
        gone = batch.column("tombstone").take(chosen).to_numpy(zero_copy_only=False)
        live = every[~gone]
        fields = batch.column("field").take(pa.array(live))
        for clock in ("event", "wall"):
            of_clock = pc.equal(fields, clock).to_numpy(zero_copy_only=False)
            rows[clock] = live[of_clock & (kinds[live] == TIMER)]
        rows["hold"], rows["waiting"] = live[kinds[live] == HOLD], live[kinds[live] == WAITING]
    facts = facts_of(batch, np.flatnonzero(kinds == FIELD))
    return index_of(bloom, present, timed, rows, times, holds, facts)


def read_cells(store: Store, name: str | None, at: int = 0) -> list[Cell]:
    """The cells of a segment of a checkpoint, in their order; none if there is no segment."""
    if name is None:
        return []
    batch = Segment.open(store, name, at).batch
    return [Cell(*row) for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]


class Segment:
    """An open segment: numbers as numpy views of the file, the rest on demand."""

    def __init__(
        self, name: str, data: pa.Buffer, *, in_parts: bool = False, is_own: bool = False
    ) -> None:
        """`name` is the file's whole name in the store; its digest is checked here.

        `in_parts`: of a large file only what is read is checked, when it is read. `is_own`: this
        process took the name from these very bytes, so nothing is checked.
        """
        self.name = name
        self._check: BlockCheck | None = None
        if in_parts:
            self._check = verify_in_parts(name, data)
        elif not is_own:
            verify(name, data)
        if self._check is not None:
            self._check.part(0, _HEAD_BYTES)
        try:
            reader = pa.ipc.open_file(data)
            metadata = reader.schema.metadata or {}
        except (pa.ArrowException, OSError) as error:
            raise CorruptCheckpoint(f"{name} is not a segment: {error}") from None
        if metadata.get(b"headrace") != b"segment":
            raise CorruptCheckpoint(f"{name} is an Arrow file, but not a segment of Headrace")
        version = metadata.get(b"format", b"")
        if not version.isdigit():
            raise CorruptCheckpoint(f"{name} does not say in which format it is")
        if int(version) > FORMAT:
            raise IncompatibleState(
                f"{name} has segment format {int(version)}; this Headrace reads up to {FORMAT}: "
                "upgrade Headrace"
            )
        if not reader.schema.equals(SCHEMA) or (version == b"1") != (b"bloom" in metadata):
            raise CorruptCheckpoint(f"{name} has other columns than a segment")
        self._batch = reader.get_batch(0)
        self.count = int(self._batch.num_rows)
        self.size = int(self._batch.get_total_buffer_size())
        """How many rows there are, and how many bytes they have."""
        if self._check is not None:
            first = self._batch.column(0).buffers()[1]  # the columns lie in their order
            self._check.part(0, first.address - data.address)
        if version == b"1":
            self.index = _index_of(self._batch, Bloom.from_bytes(metadata[b"bloom"]))
        else:
            self.index = index_in(name, data, self._check)
        self.bloom, self.facts = self.index.bloom, self.index.facts
        self._readers: dict[str, ColumnReader] = {}

    def column(self, name: str) -> Any:
        """A whole column, which is checked."""
        column = self._batch.column(name)
        if self._check is not None:
            for buffer in column.buffers():
                self._check.buffer(buffer)
        return column

    @cached_property
    def batch(self) -> pa.RecordBatch:
        """All rows."""
        for name in SCHEMA.names:
            self.column(name)
        return self._batch

    @cached_property
    def hashes(self) -> Any:
        """The hash of each row's key. Short keys are checked with them: a look-up reads both."""
        if self._keys_are_short:
            self.column("key")
        return self.column("hash").to_numpy()

    @property
    def _keys_are_short(self) -> bool:
        width = self.facts.key_bytes
        return width is not None and width <= SHORT_KEY_BYTES

    def _check_of(self, name: str) -> BlockCheck | None:
        """What checks a column; None for short keys, as they are checked with the hashes."""
        if name == "key" and self._keys_are_short and len(self.hashes):
            return None
        return self._check

    @cached_property
    def plain(self) -> PlainFields | None:
        """Reads all rows, if they are fields that differ only in keys and values of one length."""
        if self.index.kinds != 1 << FIELD or not self.facts.is_plain:
            return None
        return PlainFields(self.facts, self._batch, self._check_of("key"), self._check)

    @cached_property
    def kinds(self) -> Any:
        """What kind of cell each row is."""
        return self.column("kind").to_numpy()

    @cached_property
    def times(self) -> Any:
        """The time of each row."""
        return self.column("time").to_numpy()

    @cached_property
    def expires(self) -> Any:
        """When each row expires, or holds."""
        return self.column("expires").to_numpy()

    @cached_property
    def versions(self) -> Any:
        """The version of the class that wrote each row."""
        return self.column("version").to_numpy()

    @cached_property
    def keys(self) -> Any:
        """The key of each row, as an Arrow array."""
        return self.column("key")

    @cached_property
    def fields(self) -> Any:
        """The name of each row's field, as an Arrow array."""
        return self.column("field")

    @cached_property
    def entries(self) -> Any:
        """The entry of each row, as an Arrow array."""
        return self.column("entry")

    def has(self, kind: int) -> bool:
        """Whether there are cells of a kind."""
        return bool(self.index.kinds >> kind & 1)

    @staticmethod
    def open(store: Store, name: str, at: int = 0, *, in_parts: bool = False) -> Segment:
        """Opens a segment of a checkpoint; `at`: the log position in which it rides, or 0."""
        return Segment(name, map_named(store, name, at), in_parts=in_parts)

    def between(self, low: int, high: int) -> tuple[int, int]:
        """The rows whose hash lies in [low, high)."""
        first = int(np.searchsorted(self.hashes, np.uint64(low), "left"))
        if high >= 2**64:
            return first, len(self.hashes)
        return first, int(np.searchsorted(self.hashes, np.uint64(high), "left"))

    def inside(self, records: SlotRecords) -> tuple[Any, Any]:
        """The rows whose hash lies in some intervals, as ranges: from rows, to rows."""
        if len(records.lows) == 1 and len(self.hashes):
            low, last = records.lows[0], records.lasts[0]
            if low <= self.hashes[0] and self.hashes[-1] <= last:
                return np.zeros(1, np.int64), np.array([len(self.hashes)])
        lows = np.searchsorted(self.hashes, records.lows, "left")
        highs = np.searchsorted(self.hashes, records.lasts, "right")
        some = highs > lows
        lows, highs = lows[some], highs[some]
        if len(lows) < 2:
            return lows, highs
        # Between two intervals of the slot there are often no rows: then they are one range.
        begins = np.concatenate(([True], lows[1:] > highs[:-1]))
        return lows[begins], highs[np.append(begins[1:], True)]

    def find(
        self, hashes: Any, firsts: Any, lasts: Any, *, ascending: bool = False
    ) -> tuple[Any, Any, Any]:
        """The rows of some hashes inside ranges of rows: indexes of the hashes, from row, to row.

        A hash has all of its rows inside the ranges, or none. `ascending`: the hashes are sorted.
        """
        first = int(firsts[0])
        window = self.hashes[first : int(lasts[-1])]
        if len(window) <= UNFILTERED_ROWS:
            owners, wanted = None, hashes
        elif ascending:
            low, high = hashes.searchsorted(window[0]), hashes.searchsorted(window[-1], "right")
            owners, wanted = np.arange(low, high), hashes[low:high]
        else:
            owners = ((hashes >= window[0]) & (hashes <= window[-1])).nonzero()[0]
            wanted = hashes[owners]
        if owners is not None and len(owners) > UNFILTERED_HASHES:
            maybe = self.bloom.may_have(wanted)
            owners, wanted = owners[maybe], wanted[maybe]
        lows = window.searchsorted(wanted)
        found = (window.take(lows, mode="clip") == wanted).nonzero()[0]
        if not len(found):
            return found, found, found
        lows = lows[found]
        if len(firsts) > 1:
            inside = lows < lasts[firsts.searchsorted(lows + first, "right") - 1] - first
            found, lows = found[inside], lows[inside]
        highs = window.searchsorted(wanted[found], "right")
        return found if owners is None else owners[found], lows + first, highs + first

    def waiting(self, since: int, until: int) -> Any:
        """The rows of waiting records with since <= time <= until that were not deleted here."""
        rows = self.index.by_time("waiting")
        low, high = (
            bisect(rows, at, key=lambda row: self.times[row])
            for bisect, at in ((bisect_left, since), (bisect_right, until))
        )
        return rows[low:high].astype(np.int64)

    def identity(self, row: int) -> tuple[bytes, int, str, bytes]:
        """(key, kind, field, entry) of a row."""
        return (
            self.keys[row].as_py(),
            int(self.kinds[row]),
            self.fields[row].as_py(),
            self.entries[row].as_py(),
        )

    def rows(self, indices: np.ndarray[Any, Any], *names: str) -> list[list[Any]]:
        """The named columns of some rows, as lists. Only what is read is checked."""
        readers = self._readers
        return [(readers.get(name) or self._reader(name))(indices) for name in names]

    def of_fields(self, indices: np.ndarray[Any, Any], *names: str) -> list[Iterable[Any]]:
        """The named columns of some rows that are fields. What all fields share is not read."""
        return [
            self.rows(indices, name)[0] if (one := self.facts.constant(name)) is None
            else repeat(one, len(indices))
            for name in names
        ]  # fmt: skip

    def _reader(self, name: str) -> ColumnReader:
        """Reads a column from Arrow's buffers: `take` needs longer for the few rows of a key."""
        column, check = self._batch.column(name), self._check
        _, first, *more = column.buffers()
        if pa.types.is_boolean(column.type):
            reader = bits_of(first, column.offset, Checked.of(check, first))
        elif more:
            is_text = pa.types.is_string(column.type)
            width = self.facts.width(name)
            check = self._check_of(name)
            reader = slices_of(
                first, more[0], column.offset, text=is_text, check=check, width=width
            )
        else:
            reader = numbers_of(column.to_numpy(), Checked.of(check, first))
        self._readers[name] = reader
        return reader

    def bisect(self, low: int, high: int, identity: tuple[bytes, int, str, bytes]) -> int:
        """The first row in [low, high) at or after `identity`, where all share one hash."""
        while low < high:
            middle = (low + high) // 2
            if self.identity(middle) < identity:
                low = middle + 1
            else:
                high = middle
        return low
