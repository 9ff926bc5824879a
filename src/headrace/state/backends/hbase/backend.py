"""`HBaseBackend`: the cells of a checkpoint in a table of HBase.

HBase changes one row in one step, and compares within one row. So all cells of a share of the hash
range (`ROWS` of them) are columns of one row, and that row has its own floor and its own mark: what
must be compared lies beside what is written. The store's mark is the lowest of its rows, its floor
the highest.

- A cell's timestamp is its stamp. Of several versions HBase shows the highest, whenever each was
  written: a late write changes nothing (O2). Each write also needs that the row's floor is below
  its epoch, in the same step (`checkAndMutate`); so nothing comes back after a purge (O3).
- A tombstone is a cell of its own, never a deletion of HBase, because a major compaction drops
  those. A second column, sorted by stamp, lets a purge find it.
- Marks and floor are columns with the epoch as timestamp: they never fall.
- What a crash of a region server loses is the end of what was written to each row. So a row's mark
  outlives a crash only together with the cells before it.

`run` names the regions of the table and when each was opened: it changes when a server restarts, a
region moves, or a snapshot is put in place.

Timestamps are twice the epoch; `drop` takes the odd number above, which also hides cells of the
epoch itself. This module does not know when epochs are applied, nor what is above the cells.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from headrace.errors import StoreError
from headrace.model.values.keys import hash_key
from headrace.state.backend import AppliedCell, Hashes, StateBackend, StoreMarks
from headrace.state.backends.hbase.columns import (
    APPLIED,
    CELL,
    EPOCH,
    FAMILY,
    FLOOR,
    HEAD,
    NAME,
    SYNCED,
    TOMBSTONE,
    WRITTEN,
    beginning_with,
    cell_name,
    cell_of,
    computation_name,
    condition_on,
    field_of,
    get_between,
    get_of,
    key_name,
    key_of,
)
from headrace.state.backends.hbase.messages import Client_pb2, HBase_pb2
from headrace.state.backends.hbase.schema import (
    explained,
    new_family,
    parse_hbase_url,
    require_a_fit_table,
)
from headrace.state.backends.hbase.table import Table
from headrace.state.backends.hbase.wire import HBaseCluster
from headrace.state.segment import ENTRY, FIELD, Cell

ROWS = 256
PUT_BYTES = 2 << 20
FLUSHES_MAX = 50
PAGE = 500
"""Columns of one row in one answer, where all are read."""

_Mutation = Client_pb2.MutationProto
_Given = TypeVar("_Given")


class HBaseBackend(StateBackend):
    """The cells of one checkpoint in one table of HBase."""

    name = "hbase"

    def __init__(self, url: str, checkpoint: str) -> None:
        """Sends nothing."""
        self._url, self._checkpoint = url, checkpoint
        self.url = parse_hbase_url(url)
        namespace, _, table = self.url.place.rpartition(":")
        cluster = HBaseCluster(self.url.servers, self.url.timeout_s)
        self._table = Table(cluster, namespace.encode(), table.encode())
        flushes = self.url.options["durability"] == "flush"
        self._later = _Mutation.SKIP_WAL if flushes else _Mutation.ASYNC_WAL
        self._named: set[str] = set()
        """Computations that are known to have their name in the store."""

    def __reduce__(self) -> tuple[type[HBaseBackend], tuple[str, str]]:
        return (HBaseBackend, (self._url, self._checkpoint))

    def __repr__(self) -> str:
        return f"HBaseBackend({self.url.shown!r})"

    @property
    def promise(self) -> str:
        """What the table promises of what it was sent, in words."""
        if self._later == _Mutation.SKIP_WAL:
            return "a mark waits until the regions are flushed to files (durability=flush)"
        return "a mark waits for the write-ahead log of each region (FSYNC_WAL)"

    def lead(self, generation: int, place: str) -> None:
        """Makes the table if there is none; InvalidPipeline if it cannot keep state."""
        self._asked(self._make_table)

    # What the store says of itself ----------------------------------------

    def marks(self) -> StoreMarks:
        return self._asked(self._marks)

    def raise_applied(self, epoch: int, run: str) -> bool:
        return self._asked(lambda: self._raise_applied(epoch, run))

    def sync(self) -> None:
        flushes = self._later == _Mutation.SKIP_WAL
        durability = _Mutation.SKIP_WAL if flushes else _Mutation.FSYNC_WAL
        # The log of a region is written in order: a synced write covers all before it. A flush
        # that was begun earlier does not: only one that begins after this write has it.
        puts = [self._put(row, [(SYNCED, b"")], 0, durability) for row in self._rows()]
        for _ in range(FLUSHES_MAX):
            self._mutate(puts)
            if not flushes or self._asked(self._table.flush):
                return
        raise StoreError(f"the regions of {self.url.shown} are not flushed: see HBase's log")

    def purge(self, upto: int) -> None:
        """Each row has its own floor, below its own mark: a row that has just lost something in a
        crash refuses the floor, and then keeps its tombstones."""
        floor = min(upto, self.marks().applied)
        low = EPOCH.pack(floor)
        mark = [(FLOOR, low)]
        raised = [
            (
                condition_on(row, APPLIED, HBase_pb2.LESS_OR_EQUAL, low),
                [self._put(row, mark, floor)],
            )
            for row in self._rows()
        ]
        self._asked(partial(self._table.mutate_if, raised))
        rows, end = list(self._rows()), TOMBSTONE + EPOCH.pack(floor + 1)
        skip = len(TOMBSTONE) + EPOCH.size
        for row, columns in self._pages(rows, TOMBSTONE, end):
            names = [(c.qualifier, c.timestamp) for c in columns]
            names += [(CELL + name[skip:], timestamp) for name, timestamp in names]
            has_it = condition_on(row, FLOOR, HBase_pb2.LESS_OR_EQUAL, low)
            deletion = self._deletion(row, names)
            self._asked(partial(self._table.mutate_if, [(has_it, [deletion])]))
        for row, columns in self._pages(rows, *beginning_with(WRITTEN)):  # of ones who died
            self._mutate([self._deletion(row, [(c.qualifier, c.timestamp) for c in columns])])

    # Cells ----------------------------------------------------------------

    def write(self, epoch: int, cells: Iterable[tuple[str, Cell]]) -> None:
        columns: dict[int, list[tuple[bytes, bytes]]] = {}
        sizes: dict[int, int] = {}
        ready: list[Any] = []
        ready_bytes = 0
        for computation, cell in cells:
            self._name(computation)
            where = cell_name(computation, cell.hash, cell.key, cell.kind, cell.field, cell.entry)
            value = b"" if cell.tombstone else cell.value
            head = HEAD.pack(cell.tombstone, cell.expires, cell.version)
            row = cell.hash >> 56
            mine = columns.setdefault(row, [])
            mine.append((CELL + where, head + value))
            if cell.tombstone:
                mine.append((TOMBSTONE + EPOCH.pack(epoch) + where, b""))
            size = len(value) + 2 * len(where) + 60
            sizes[row] = sizes.get(row, 0) + size
            if sizes[row] > PUT_BYTES:
                ready.append(self._put(self._row(row), columns.pop(row), 2 * epoch))
                ready_bytes += sizes.pop(row)
            if ready_bytes > 8 * PUT_BYTES:
                self._asked(partial(self._write, epoch, ready))
                ready, ready_bytes = [], 0
        ready += [self._put(self._row(row), mine, 2 * epoch) for row, mine in columns.items()]
        self._asked(partial(self._write, epoch, ready))

    def drop(self, computation: str, epoch: int, keys: Sequence[bytes] | None) -> None:
        if keys is None:
            found = self._pages(
                list(self._rows()), *beginning_with(CELL + computation_name(computation))
            )
        else:
            found = (
                page
                for key in keys
                for page in self._pages(
                    [self._row(hash_key(key) >> 56)],
                    *beginning_with(CELL + key_name(computation, hash_key(key), key)),
                )
            )
        gone = HEAD.pack(True, 0, 0)
        for row, columns in found:
            names = [c.qualifier for c in columns if c.timestamp <= 2 * epoch]
            buried = [(name, gone) for name in names]
            buried += [(TOMBSTONE + EPOCH.pack(epoch) + name[1:], b"") for name in names]
            if buried:
                put = self._put(row, buried, 2 * epoch + 1)
                self._mutate([put])

    def read_fields(
        self, computation: str, keys: Sequence[bytes], hashes: Hashes
    ) -> Sequence[Mapping[str, AppliedCell]]:
        gets = [
            get_between(
                self._row(where >> 56),
                *beginning_with(CELL + key_name(computation, where, key) + bytes([FIELD])),
            )
            for key, where in zip(keys, hashes.tolist(), strict=True)
        ]
        return [
            {field_of(c.qualifier, key, computation)[0]: cell_of(c) for c in found}
            for key, found in zip(keys, self._got(gets), strict=True)
        ]

    def read_entries(
        self, computation: str, name: str, keys: Sequence[bytes], hashes: Hashes
    ) -> Sequence[Mapping[bytes, AppliedCell]]:
        begins = [
            CELL + cell_name(computation, where, key, ENTRY, name, b"")
            for key, where in zip(keys, hashes.tolist(), strict=True)
        ]
        gets = [
            get_between(self._row(where >> 56), *beginning_with(begin))
            for begin, where in zip(begins, hashes.tolist(), strict=True)
        ]
        return [
            {c.qualifier[len(begin) :]: cell_of(c) for c in found}
            for begin, found in zip(begins, self._got(gets), strict=True)
        ]

    def read_entry(
        self, computation: str, name: str, key: bytes, entry: bytes
    ) -> AppliedCell | None:
        where = hash_key(key)
        column = CELL + cell_name(computation, where, key, ENTRY, name, entry)
        (found,) = self._got([get_of(self._row(where >> 56), column)])
        return cell_of(found[0]) if found else None

    def read_range(
        self, computation: str, name: str, key: bytes, low: bytes | None, high: bytes | None
    ) -> Iterable[tuple[bytes, AppliedCell]]:
        where = hash_key(key)
        begin = CELL + cell_name(computation, where, key, ENTRY, name, b"")
        first, last = beginning_with(begin)
        first = first if low is None else begin + low
        last = last if high is None else begin + high
        for _, columns in self._pages([self._row(where >> 56)], first, last, values=True):
            yield from ((c.qualifier[len(begin) :], cell_of(c)) for c in columns)

    def map_names(self, computation: str, key: bytes) -> Sequence[str]:
        where = hash_key(key)
        begin, end = beginning_with(CELL + key_name(computation, where, key) + bytes([ENTRY]))
        names: list[str] = []
        while True:  # each request leaps over the entries of one map
            get = get_between(self._row(where >> 56), begin, end, limit=1, values=False)
            (found,) = self._got([get])
            if not found:
                return names
            names.append(field_of(found[0].qualifier, key, computation)[0])
            begin = beginning_with(
                CELL + cell_name(computation, where, key, ENTRY, names[-1], b"")
            )[1]

    def scan(self, computation: str) -> Iterator[tuple[int, bytes]]:
        last = b""
        begin, end = beginning_with(CELL + computation_name(computation))
        for _, columns in self._pages(list(self._rows()), begin, end):
            for column in columns:
                where, key = key_of(column.qualifier, computation)
                if key != last:
                    yield where, key
                last = key

    def computations(self) -> Sequence[str]:
        get = get_between(self._row(0), *beginning_with(NAME))
        return sorted(c.qualifier[1:].decode() for c in self._got([get])[0])

    def close(self) -> None:
        self._table.cluster.close()

    # The steps ------------------------------------------------------------

    def _make_table(self) -> None:
        schema = self._table.schema()
        if schema is None:
            self._table.create(new_family())
        else:
            require_a_fit_table(schema, self.url)

    def _marks(self) -> StoreMarks:
        """Read between two looks at the regions that found the same."""
        while True:
            run = self._table.identity()
            gets = [get_of(row, APPLIED, FLOOR) for row in self._rows()]
            said = [{c.qualifier: EPOCH.unpack(c.value)[0] for c in f} for f in self._got(gets)]
            if self._table.identity() == run:
                applied = min(row.get(APPLIED, 0) for row in said)
                return StoreMarks(applied, max(row.get(FLOOR, 0) for row in said), run)

    def _raise_applied(self, epoch: int, run: str) -> bool:
        """A sign is written to each row, after the cells; then the regions are looked at; then
        the marks are written where the sign still is.

        If the regions are the same, cells and sign were there. If a row loses something after
        that, and still has the sign, then it has what was written before the sign.
        """
        before = self._marks()
        if before.run != run or before.applied >= epoch:
            return before.run == run
        sign = WRITTEN + secrets.token_bytes(8)
        self._table.mutate([self._put(row, [(sign, b"1")], 0) for row in self._rows()])
        if self._table.identity() != run:
            return False
        mark = [(APPLIED, EPOCH.pack(epoch))]
        guarded = [
            (
                condition_on(row, sign, HBase_pb2.EQUAL, b"1"),
                [self._put(row, mark, epoch), self._deletion(row, [(sign, 0)])],
            )
            for row in self._rows()
        ]
        return all(self._table.mutate_if(guarded))

    def _write(self, epoch: int, puts: Sequence[Any]) -> None:
        """Writes where the floor is below the epoch; a row without a floor gets one first."""
        open_ones = list(puts)
        while open_ones:
            above = EPOCH.pack(epoch)
            written = self._table.mutate_if(
                [
                    (condition_on(put.row, FLOOR, HBase_pb2.GREATER, above), [put])
                    for put in open_ones
                ]
            )
            refused = [p for p, done in zip(open_ones, written, strict=True) if not done]
            gets = [get_of(put.row, FLOOR) for put in refused]
            open_ones = [p for p, has in zip(refused, self._got(gets), strict=True) if not has]
            none = [(FLOOR, EPOCH.pack(0))]
            self._table.mutate([self._put(row, none, 0) for row in {p.row for p in open_ones}])

    def _name(self, computation: str) -> None:
        if computation not in self._named:
            put = self._put(self._row(0), [(NAME + computation.encode(), b"")], 0)
            self._mutate([put])
            self._named.add(computation)

    def _put(
        self, row: bytes, columns: Sequence[tuple[bytes, bytes]], timestamp: int,
        durability: Any = None,
    ) -> Any:  # fmt: skip
        made = _Mutation(row=row, mutate_type=_Mutation.PUT, durability=durability or self._later)
        values = made.column_value.add(family=FAMILY).qualifier_value
        for name, value in columns:
            values.add(qualifier=name, value=value, timestamp=timestamp)
        return made

    def _deletion(self, row: bytes, columns: Sequence[tuple[bytes, int]]) -> Any:
        """Deletes the versions of columns up to a timestamp each."""
        made = _Mutation(row=row, mutate_type=_Mutation.DELETE, durability=self._later)
        values = made.column_value.add(family=FAMILY).qualifier_value
        kind = _Mutation.DELETE_MULTIPLE_VERSIONS
        for name, timestamp in columns:
            values.add(qualifier=name, timestamp=timestamp, delete_type=kind)
        return made

    def _row(self, share: int) -> bytes:
        return bytes([share]) + self._checkpoint.encode()

    def _rows(self) -> Iterator[bytes]:
        return (self._row(share) for share in range(ROWS))

    def _mutate(self, mutations: Sequence[Any]) -> None:
        self._asked(lambda: self._table.mutate(mutations))

    def _got(self, gets: Sequence[Any]) -> list[Any]:
        return self._asked(lambda: self._table.get(gets)) if gets else []

    def _pages(
        self, rows: Sequence[bytes], begin: bytes, end: bytes, *, values: bool = False
    ) -> Iterator[tuple[bytes, Any]]:
        """(row, columns) from `begin` up to `end`, a page at a time."""
        open_ones = [(row, begin) for row in rows]
        while open_ones:
            some, open_ones = open_ones[:32], open_ones[32:]
            found = self._got([get_between(r, b, end, limit=PAGE, values=values) for r, b in some])
            for (row, _), columns in zip(some, found, strict=True):
                if columns:
                    yield row, columns
                if len(columns) == PAGE:
                    open_ones.insert(0, (row, columns[-1].qualifier + b"\0"))

    def _asked(self, act: Callable[[], _Given]) -> _Given:
        return explained(self.url, act)
