"""`top` over rows that replace each other, in two phases. The latest row of each id counts.

A row goes to one of a few buckets by the hash of its id. A bucket keeps the latest row of every id
and its own best n rows; it sends them on only when they change. The second phase merges the
buckets' lists. So no slot sees all rows, and the last slot sees few.

The latest row is the one with the newest time; among equal times, the one that arrived last. The
time of an id's row is remembered as long as an older row that is not late may arrive.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import IncompatibleState, InvalidRecord
from headrace.model.computation import Computation
from headrace.model.context import TableContext
from headrace.model.key_spec import KeySpec
from headrace.model.map import Map
from headrace.model.state import state
from headrace.model.values.codec import decode_value, packed, packed_exactly
from headrace.model.values.keys import encode_key
from headrace.model.values.kinds import ordered
from headrace.model.values.shown import shown
from headrace.operators.columns.cells import simple
from headrace.operators.columns.groups import Ints
from headrace.operators.columns.hashes import hash_column, mixed
from headrace.operators.columns.output import parts_of, send, send_dicts
from headrace.operators.columns.records import Records

BUCKETS = 16
BUCKET, BEST = "_bucket", "_best"

Ranked = tuple[bytes, bytes, bytes]
"""(score in the order over kinds, id, row). Sorted by largest score, then by id and row."""

_ranked = msgspec.msgpack.Decoder(list[Ranked])
_times = msgspec.msgpack.Decoder(dict[bytes, int])


class Bucketed(Computation):
    """A keyless step that adds the bucket of the id to each row."""

    def __init__(self, id: tuple[str, ...], columns: tuple[str, ...]) -> None:
        self.id, self.columns = id, columns

    reads_values = False

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Adds buckets to all rows of a task. Each row without a key or an id is refused."""
        (given,) = ctx.inputs()
        records = Records(given.rows, given.key_index)
        ids = [records.column(name) for name in self.id]
        nameless = np.logical_and.reduce([c.is_null().to_numpy(False) for c in ids])
        keyless = self._keyless(records)
        for row in np.flatnonzero(nameless | keyless).tolist():
            value = records.rows.take(np.array([row])).values()[0]
            error = _no_key(value, self.columns) or self._no_id(value)
            ctx.set_aside(error, row, value, int(records.times[row]))
        hashes = np.zeros(len(records), np.uint64)
        for column in ids:
            hashes = mixed(hashes ^ hash_column(column))
        buckets = (hashes % np.uint64(BUCKETS)).astype(np.int64)
        self._deal(records, np.flatnonzero(~(nameless | keyless)), buckets, ctx)

    def _keyless(self, records: Records) -> Any:
        """Rows without a usable key. With a bucket it would pass, as a part may be null."""
        doubtful = np.zeros(len(records), np.bool_)
        for column in map(records.column, self.columns):
            if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
                empty = pc.equal(pc.binary_length(column), 0).fill_null(True)
                doubtful |= empty.to_numpy(False)
            elif pa.types.is_int64(column.type):
                doubtful |= column.is_null().to_numpy(False)
            else:
                doubtful |= True
        found = np.zeros(len(records), np.bool_)
        rows = np.flatnonzero(doubtful)
        for row, value in zip(rows.tolist(), records.rows.take(rows).values(), strict=True):
            found[row] = _no_key(value, self.columns) is not None
        return found

    def _no_id(self, value: Any) -> Exception:
        return ValueError(
            f"top: a row has no value in {', '.join(map(repr, self.id))} to know it by, the "
            f"id: {shown(value, 200)}. Leave such rows out with filter before"
        )

    def _deal(self, records: Records, taken: Ints, buckets: Ints, ctx: TableContext) -> None:
        times, buckets = records.times[taken], buckets[taken]
        if records.rows.packed is not None:
            pairs = zip(records.dicts(taken), buckets.tolist(), strict=True)
            values = [{**value, BUCKET: bucket} for value, bucket in pairs]
            send_dicts(ctx, values, timestamp=times, causes=taken)
            return
        columns: Any = records.rows.take(taken).columns
        dealt = pa.Table.from_batches([columns]).append_column(BUCKET, pa.array(buckets))
        ctx.produce_table(dealt, timestamp=times, causes=taken)


def _no_key(value: Any, columns: tuple[str, ...]) -> Exception | None:
    """Why a row has no key; None if it has one."""
    given = columns[0] if len(columns) == 1 else columns
    try:
        encode_key(KeySpec(given, where="top").extract(value))
    except InvalidRecord as error:
        return error
    return None


class BucketTop(Computation):
    """Keeps the latest row of each id of a bucket, and the best n of them."""

    prompt = True
    reads_values = False
    rows: Map[bytes, bytes] = state()
    best: bytes = state(b"")
    recent: bytes = state(b"")
    """The times of the latest rows of ids, if the watermark has not passed them."""
    ranking: str = state("")
    """Identifies the ranking: n, the ranked column and the id."""

    def __init__(self, n: int, by: str, id: tuple[str, ...]) -> None:
        self.n, self.by, self.id = n, by, id

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Replaces the rows of ids by new rows; sends the best n if they changed."""
        (given,) = ctx.inputs()
        records = Records(given.rows, given.key_index)
        times, owners = records.times, records.key.tolist()
        ids = list(zip(*(records.raw(name) for name in self.id), strict=True))
        stored = ctx.read()
        recent = [_times.decode(d) if d else {} for d in stored.column("recent").to_pylist()]
        newest_rows: dict[tuple[int, bytes], int] = {}
        for i in np.argsort(times, kind="stable").tolist():
            name, owner, time = _name(ids[i]), owners[i], int(times[i])
            if time >= recent[owner].get(name, time):
                recent[owner][name] = time
                newest_rows[owner, name] = i
        latest = self._ranked(records, newest_rows)
        ranking = f"{self.n} {self.by} {self.id}"
        others = set(stored.column("ranking").to_pylist()) - {"", ranking}
        if others:
            raise IncompatibleState(
                "the rows in the checkpoint were ranked by another n, by= or id= than it has now. "
                'Give the step another name, .named("..."), under which it starts without state'
            )
        before = stored.column("best").to_pylist()
        after = list(before)
        changed: list[int] = []
        for owner, new in latest.items():
            rows = [packed(row) if row is not None else None for row in new.values()]
            ctx.put_entries("rows", [owner] * len(new), list(new), rows)
            best = self._best(owner, _decoded(before[owner]), new, ctx)
            after[owner] = packed(best)
            if after[owner] != before[owner]:
                changed.append(owner)
        passed = ctx.watermark_after  # rows of later epochs that are not late are at least as new
        left = [{n: t for n, t in sorted(known.items()) if t > passed} for known in recent]
        ranked_by = [ranking] * len(after)
        ctx.write(
            best=after,
            ranking=ranked_by,
            recent=[packed(times) if times else b"" for times in left],
        )
        if changed:
            newest = dict(sorted(zip(owners, times.tolist(), strict=True)))
            keys, rows_of = ctx.keys(), np.array(changed)
            names = [f"k{i}" for i in range(len(keys[0]))]
            best_of = pa.array([after[owner] for owner in changed], pa.binary())
            send(
                ctx,
                {**parts_of(names, keys, rows_of), BEST: best_of},
                timestamp=np.array([newest[owner] for owner in changed]),
                key_index=rows_of,
            )

    def _ranked(
        self, records: Records, rows: dict[tuple[int, bytes], int]
    ) -> dict[int, dict[bytes, Ranked | None]]:
        """By owner and id: the row in the form for ranking, or None if it has no score."""
        scores = records.raw(self.by)
        values = records.dicts(np.fromiter(rows.values(), np.int64, len(rows)))
        found: dict[int, dict[bytes, Ranked | None]] = {}
        for ((owner, name), i), value in zip(rows.items(), values, strict=True):
            place = None if scores[i] is None else ordered(simple(scores[i]))
            del value[BUCKET]
            row = None if place is None else (place, name, packed_exactly(value))
            found.setdefault(owner, {})[name] = row
        return found

    def _best(
        self, owner: int, best: list[Ranked], new: dict[bytes, Ranked | None], ctx: TableContext
    ) -> list[Ranked]:
        kept = {row[1]: row for row in best}
        for name, row in new.items():
            if name in kept and len(best) >= self.n and (row is None or _below(row, kept[name])):
                # One of the best became worse: only all rows together show which row follows.
                every = ctx.entries("rows", [owner]).column("value").to_pylist()
                rows = [msgspec.msgpack.decode(cell, type=Ranked) for cell in every]
                return ranked(rows, self.n)
        for name, row in new.items():
            if row is None:
                kept.pop(name, None)
            else:
                kept[name] = row
        return ranked(list(kept.values()), self.n)


class MergeTop(Computation):
    """Merges the best rows of all buckets; sends the whole list, with ranks, when it has changed.

    If the list becomes shorter, rows with only key and rank are sent for the removed ranks.
    """

    prompt = True
    reads_values = False
    buckets: Map[int, bytes] = state()
    sent: bytes = state(b"")

    def __init__(self, n: int, columns: tuple[str, ...]) -> None:
        self.n, self.columns = n, columns

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Merges new lists of some buckets."""
        (given,) = ctx.inputs()
        records = Records(given.rows, given.key_index)
        times, owners = records.times, records.key.tolist()
        numbers = records.raw(f"k{len(self.columns)}")  # after the parts of the key
        ctx.put_entries("buckets", owners, numbers, records.raw(BEST))
        sent = ctx.read().column("sent").to_pylist()
        found = ctx.entries("buckets")
        lists: dict[int, list[Ranked]] = {}
        for owner, data in zip(
            found.column("key_index").to_pylist(), found.column("value").to_pylist(), strict=True
        ):
            lists.setdefault(owner, []).extend(_ranked.decode(data))
        newest: dict[int, int] = {}
        for owner, time in zip(owners, times.tolist(), strict=True):
            newest[owner] = max(time, newest.get(owner, time))
        values: list[dict[str, Any]] = []
        whose: list[int] = []
        for owner in dict.fromkeys(owners):
            best = ranked(lists.get(owner, []), self.n)
            data = packed(best)
            if data == sent[owner]:
                continue
            gone = _decoded(sent[owner])[len(best) :]
            sent[owner] = data
            for rank, (_, _, cell) in enumerate(best, 1):
                values.append({**decode_value(cell), "rank": rank})
            for rank, (_, _, cell) in enumerate(gone, len(best) + 1):
                row = decode_value(cell)
                kept = {name: row.get(name) for name in self.columns}
                values.append({**dict.fromkeys(row), **kept, "rank": rank})
            whose += [owner] * (len(best) + len(gone))
        ctx.write(sent=sent)
        if values:
            send_dicts(
                ctx,
                values,
                timestamp=np.array([newest[owner] for owner in whose]),
                key_index=np.array(whose),
            )


def ranked(rows: list[Ranked], n: int) -> list[Ranked]:
    """The n best rows, with each id once."""
    rows.sort(key=lambda row: row[1:])
    rows.sort(key=lambda row: row[0], reverse=True)
    return rows[:n]


def _below(row: Ranked, other: Ranked) -> bool:
    return row[0] < other[0]


_USUAL = frozenset({str, int, bytes, bool, type(None)})


def _name(id: tuple[Any, ...]) -> bytes:
    """The bytes of an id: equal for equal values of one kind."""
    if _USUAL.issuperset(map(type, id)) and not any(type(i) is int and abs(i) >> 63 for i in id):
        return packed(id)
    return ordered(id)


def _decoded(data: bytes) -> list[Ranked]:
    return _ranked.decode(data) if data else []
