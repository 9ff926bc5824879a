"""`top` over rows that replace each other: the latest row of each id counts. In two phases.

A row goes to one of a few buckets by the hash of its id. A bucket keeps the latest row of
every id and its own best n; only when those change it sends them on. The second phase puts
the buckets' lists together. So no slot sees all rows, and the last one sees few.

The latest is the one with the newest time, of equal times the one that came last. Which times
ids have is remembered as long as an older row may come that is not late.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.errors import IncompatibleState
from headrace.model.codec import packed
from headrace.model.computation import Computation
from headrace.model.context import TableContext
from headrace.model.map import Map
from headrace.model.rows import dicts, values_of
from headrace.model.state import state
from headrace.pipeline.operators.aggregates import column_of
from headrace.pipeline.operators.grouping import in_order
from headrace.pipeline.operators.hashing import hash_column, mixed
from headrace.pipeline.operators.stateless import record_times

BUCKETS = 16
BUCKET, BEST = "_bucket", "_best"

Ranked = tuple[Any, bytes, bytes]
"""(score, id, row): the largest score first, then by id and row."""

_ranked = msgspec.msgpack.Decoder(list[Ranked])
_times = msgspec.msgpack.Decoder(dict[bytes, int])


class Bucketed(Computation):
    """Keyless: puts the id's bucket beside each row."""

    def __init__(self, id: tuple[str, ...]) -> None:
        self.id = id

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """All rows of a task."""
        hashes = np.zeros(table.num_rows, np.uint64)
        columns = [column_of(table, name) for name in self.id]
        nameless = np.logical_and.reduce([c.is_null().to_numpy(False) for c in columns])
        if nameless.any():
            row = dicts(values_of(table).slice(int(np.flatnonzero(nameless)[0]), 1))[0]
            raise ValueError(
                f"top: a row has no value in {', '.join(map(repr, self.id))} to know it by, the "
                f"id: {row!r:.200}. Leave such rows out with filter before"
            )
        for column in columns:
            hashes = mixed(hashes ^ hash_column(column))
        buckets = pa.array((hashes % np.uint64(BUCKETS)).astype(np.int64))
        values = values_of(table).append_column(BUCKET, buckets)
        ctx.produce_table(values, timestamp=record_times(table))


class BucketTop(Computation):
    """The latest row of each id of a bucket, and the best n of them."""

    prompt = True
    rows: Map[bytes, bytes] = state()
    best: bytes = state(b"")
    recent: bytes = state(b"")
    ranking: str = state("")
    """What the rows are ranked by."""
    """The times of ids' latest rows, of those that the watermark has not passed."""

    def __init__(self, n: int, by: str, id: tuple[str, ...]) -> None:
        self.n, self.by, self.id = n, by, id

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """New rows replace those of their ids; sends what changed among the best."""
        times = record_times(table)
        owners = table.column("key_index").to_pylist()
        scores = column_of(table, self.by).to_pylist()
        ids = list(zip(*(column_of(table, name).to_pylist() for name in self.id), strict=True))
        cells = [packed(value) for value in dicts(values_of(table).drop([BUCKET]))]
        stored = ctx.read()
        recent = [_times.decode(d) if d else {} for d in stored.column("recent").to_pylist()]
        latest: dict[int, dict[bytes, Ranked | None]] = {owner: {} for owner in owners}
        for i in np.argsort(times, kind="stable").tolist():
            name, owner, time = packed(ids[i]), owners[i], int(times[i])
            if time >= recent[owner].get(name, time):
                recent[owner][name] = time
                row = None if scores[i] is None else (scores[i], name, cells[i])
                latest[owner][name] = row
        ranking = f"{self.n} {self.by} {self.id}"
        others = set(stored.column("ranking").to_pylist()) - {"", ranking}
        if others:
            raise IncompatibleState(
                "the rows in the checkpoint were ranked by another n, by= or id= than it has now. "
                'Give the step another name, .named("..."), under which it begins anew'
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
        passed = ctx.watermark_after  # what comes in later epochs and is not late is as new
        left = [{n: t for n, t in sorted(known.items()) if t > passed} for known in recent]
        ranked_by = [ranking] * len(after)
        ctx.write(
            best=after,
            ranking=ranked_by,
            recent=[packed(times) if times else b"" for times in left],
        )
        if changed:
            newest = dict(sorted(zip(owners, times.tolist(), strict=True)))
            keys = ctx.read().column("key").combine_chunks().take(pa.array(changed))
            ctx.produce_table(
                {
                    **{f"k{i}": keys.field(i) for i in range(keys.type.num_fields)},
                    BEST: pa.array([after[owner] for owner in changed], pa.binary()),
                },
                timestamp=np.array([newest[owner] for owner in changed]),
                key_index=np.array(changed),
            )

    def _best(
        self, owner: int, best: list[Ranked], new: dict[bytes, Ranked | None], ctx: TableContext
    ) -> list[Ranked]:
        kept = {row[1]: row for row in best}
        for name, row in new.items():
            if name in kept and len(best) >= self.n and (row is None or _below(row, kept[name])):
                # One of the best fell: who follows them is known by all rows only.
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
    """The best of all buckets; sends the list anew, with ranks, when it has changed.

    Ranks that a shorter list no longer has come with nothing but key and rank.
    """

    prompt = True
    buckets: Map[int, bytes] = state()
    sent: bytes = state(b"")

    def __init__(self, n: int, columns: tuple[str, ...]) -> None:
        self.n, self.columns = n, columns

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """New lists of some buckets."""
        names = table.schema.names
        bucket = max((n for n in names if n[:1] == "k" and n[1:].isdigit()), key=_number)
        times = record_times(table)
        owners = table.column("key_index").to_pylist()
        numbers = table.column(bucket).to_pylist()
        ctx.put_entries("buckets", owners, numbers, table.column(BEST).to_pylist())
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
                values.append({**msgspec.msgpack.decode(cell), "rank": rank})
            for rank, (_, _, cell) in enumerate(gone, len(best) + 1):
                row = msgspec.msgpack.decode(cell)
                kept = {name: row.get(name) for name in self.columns}
                values.append({**dict.fromkeys(row), **kept, "rank": rank})
            whose += [owner] * (len(best) + len(gone))
        ctx.write(sent=sent)
        if values:
            columns = dict.fromkeys(name for value in values for name in value)
            ctx.produce_table(
                {name: [value.get(name) for value in values] for name in columns},
                timestamp=np.array([newest[owner] for owner in whose]),
                key_index=np.array(whose),
            )


def ranked(rows: list[Ranked], n: int) -> list[Ranked]:
    """The n best, each id once."""
    rows.sort(key=lambda row: row[1:])
    rows.sort(key=lambda row: in_order(row[0]), reverse=True)
    return rows[:n]


def _below(row: Ranked, other: Ranked) -> bool:
    return in_order(row[0]) < in_order(other[0])


def _decoded(data: bytes) -> list[Ranked]:
    return _ranked.decode(data) if data else []


def _number(name: str) -> int:
    return int(name[1:])
