"""`top`: the rows with the largest values, per key and window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.model.codec import packed
from headrace.model.context import TableContext
from headrace.model.rows import dicts, values_of
from headrace.pipeline.operators.aggregates import Aggregate, Parts, column_of
from headrace.pipeline.operators.grouping import Groups, Ints, in_order, runs, sorted_rows
from headrace.pipeline.operators.partials import Partials
from headrace.pipeline.operators.window import CombinedAggregate, WindowAggregate

_ranked = msgspec.msgpack.Decoder(list[tuple[Any, bytes]])


@dataclass(frozen=True)
class TopRows(Aggregate):
    """The n rows with the largest `column`; of equal ones those whose bytes come first.

    `ties` keeps all that are equal to the n-th. Part: the rows, as [value, bytes] pairs.
    """

    n: int = 1
    ties: bool = False

    def start(self, table: pa.Table, times: Ints, groups: Groups) -> Parts:
        values = column_of(table, self.column or "")
        rows = np.flatnonzero(values.is_valid().to_numpy(False))
        values, groups = values.take(pa.array(rows)), groups.take(rows)
        order = sorted_rows(groups, values)[::-1]
        of = groups.of[order]
        starts = runs(of)
        lengths = np.diff(np.append(starts, len(of)))
        # All that reach the n-th value of their group: which of equals stay is decided by bytes.
        ranked = values.take(pa.array(order))
        codes = ranked.dictionary_encode().indices.to_numpy(False)
        nth = np.minimum(starts + self.n, starts + lengths) - 1
        position = np.arange(len(of)) - np.repeat(starts, lengths)
        kept = (position < self.n) | (codes == codes[np.repeat(nth, lengths)])
        chosen = pa.array(rows[order[kept]])
        cells = [packed(row) for row in dicts(values_of(table).take(chosen))]
        scores = ranked.filter(pa.array(kept)).to_pylist()
        found: list[list[tuple[Any, bytes]]] = [[] for _ in range(groups.count)]
        for owner, score, cell in zip(of[kept].tolist(), scores, cells, strict=True):
            found[owner].append((score, cell))
        return self._stored(found)

    def _stored(self, found: list[list[tuple[Any, bytes]]]) -> Parts:
        return [pa.array([packed(self._first(pairs)) for pairs in found], pa.binary())]

    def _first(self, pairs: list[tuple[Any, bytes]]) -> list[tuple[Any, bytes]]:
        pairs.sort(key=lambda pair: pair[1])
        pairs.sort(key=lambda pair: in_order(pair[0]), reverse=True)
        if len(pairs) <= self.n:
            return pairs
        if not self.ties:
            return pairs[: self.n]
        last = in_order(pairs[self.n - 1][0])
        return [pair for pair in pairs if in_order(pair[0]) >= last]

    def merge(self, parts: Parts, groups: Groups) -> Parts:
        found: list[list[tuple[Any, bytes]]] = [[] for _ in range(groups.count)]
        for owner, data in zip(groups.of.tolist(), parts[0].to_pylist(), strict=True):
            found[owner].extend(_ranked.decode(data))
        return self._stored(found)

    def finish(self, parts: Parts) -> pa.Array:
        return parts[0]


class WindowTop(WindowAggregate):
    """Sends the rows themselves, with their rank; equal values have equal ranks."""

    def _results(self, rows: Partials, ctx: TableContext) -> tuple[Partials, dict[str, Any]]:
        owners: list[int] = []
        values: list[dict[str, Any]] = []
        for i, data in enumerate(rows.parts[0].to_pylist()):
            pairs = _ranked.decode(data)
            above: dict[Any, int] = {}
            for position, (score, cell) in enumerate(pairs):
                rank = above.setdefault(in_order(score), position + 1)
                owners.append(i)
                values.append({**msgspec.msgpack.decode(cell), "rank": rank})
        chosen = rows.take(np.array(owners, np.int64))
        if not values:
            return chosen, {}
        names = dict.fromkeys(name for value in values for name in value)
        given = {name: [value.get(name) for value in values] for name in names}
        columns = {**given, **self._key_and_window(chosen, ctx)}
        columns["rank"] = columns.pop("rank")
        return chosen, columns


class CombinedTop(WindowTop, CombinedAggregate):
    """The same, with the best of each task chosen before the shuffle."""
