"""`top`: the rows with the largest values, per key and window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa

from headrace.model.context import TableContext
from headrace.model.values.codec import decode_value, packed
from headrace.operators.aggregates.aggregate import Aggregate, Failed, Parts
from headrace.operators.columns.cells import Form
from headrace.operators.columns.groups import Groups, runs
from headrace.operators.columns.output import in_python, send_dicts
from headrace.operators.columns.records import Records
from headrace.operators.top.ranking import SMALLEST_FIRST, RankedBy, name_in
from headrace.operators.windows.aggregation import CombinedAggregate, WindowAggregate
from headrace.operators.windows.partials import Partials
from headrace.operators.windows.withdrawals import WITHDRAWN, Replaced

Ranked = tuple[bytes, bytes]
"""(score in the order over kinds, row)."""

_ranked = msgspec.msgpack.Decoder(list[Ranked])


@dataclass(frozen=True)
class TopRows(Aggregate):
    """The n rows with the largest `column`; among equal rows, those whose bytes sort first.

    `ties` keeps all rows that are equal to the n-th. Part: the rows, as [score, bytes] pairs.
    """

    n: int = 1
    ties: bool = False
    order: tuple[str, ...] = ()
    """If it is not by the largest of one column: all columns, as `RankedBy` reads them."""
    numbered: bool = False
    """Whether rows with equal values have different ranks."""

    forms: ClassVar[tuple[Form, ...]] = ("bytes",)

    @classmethod
    def by(cls, given: tuple[str, ...], n: int, ties: bool, numbered: bool) -> TopRows:
        """Ranks by these columns; a minus before a name means the smallest first."""
        plain = len(given) == 1 and not given[0].startswith(SMALLEST_FIRST)
        return cls(name_in(given[0]), n, ties, () if plain else given, numbered)

    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(name_in, self.order))) or super().columns()

    def meaning(self) -> tuple[Any, ...]:
        # Ranks are given when rows are sent, and one column means what it always meant.
        order = (self.order,) if self.order else ()
        return (type(self).__name__, self.column, self.n, self.ties, *order)

    def start(self, records: Records, groups: Groups) -> Parts:
        values = records.column(self.column or "")
        rows = np.flatnonzero(values.is_valid().to_numpy(False))
        groups = groups.take(rows)
        ranked = RankedBy(self.order or (self.column or "",), records, rows)
        order = ranked.largest_first(groups)
        of = groups.of[order]
        starts = runs(of)
        lengths = np.diff(np.append(starts, len(of)))
        # Keep all rows that reach the n-th value of their group; bytes decide among equal ones.
        nth = np.minimum(starts + self.n, starts + lengths) - 1
        position = np.arange(len(of)) - np.repeat(starts, lengths)
        kept = (position < self.n) | ranked.equal(order, order[np.repeat(nth, lengths)])
        cells = records.packed(rows[order[kept]])
        scores = ranked.scores(order[kept])
        found: list[list[Ranked]] = [[] for _ in range(groups.count)]
        for owner, score, cell in zip(of[kept].tolist(), scores, cells, strict=True):
            found[owner].append((score, cell))
        return self._stored(found)

    def _stored(self, found: list[list[Ranked]]) -> Parts:
        return [pa.array([packed(self._first(pairs)) for pairs in found], pa.binary())]

    def _first(self, pairs: list[Ranked]) -> list[Ranked]:
        pairs.sort(key=_row)
        pairs.sort(key=_score, reverse=True)
        if len(pairs) <= self.n:
            return pairs
        if not self.ties:
            return pairs[: self.n]
        last = pairs[self.n - 1][0]
        return [pair for pair in pairs if pair[0] >= last]

    def merge(self, parts: Parts, groups: Groups, failed: Failed) -> Parts:
        found: list[list[Ranked]] = [[] for _ in range(groups.count)]
        for owner, data in zip(groups.of.tolist(), parts[0].to_pylist(), strict=True):
            found[owner].extend(_ranked.decode(data))
        return self._stored(found)


def _score(pair: Ranked) -> bytes:
    return pair[0]


def _row(pair: Ranked) -> bytes:
    return pair[1]


class WindowTop(WindowAggregate):
    """Sends the rows themselves, with their rank. Equal values have equal ranks, if rows are not
    numbered."""

    def _send(
        self,
        rows: Partials,
        ctx: TableContext,
        replaced: Replaced | None = None,
        failures: Any = None,
    ) -> None:
        rows = rows.take(np.lexsort((rows.key, rows.start, rows.end)))
        owners: list[int] = []
        ranked: list[tuple[dict[str, Any], int]] = []
        (top,) = self.aggregates[: len(self.names)]
        numbered = isinstance(top, TopRows) and top.numbered
        for i, data in enumerate(rows.parts[0].to_pylist()):
            above: dict[bytes, int] = {}
            for position, (score, cell) in enumerate(_ranked.decode(data)):
                owners.append(i)
                rank = position + 1 if numbered else above.setdefault(score, position + 1)
                ranked.append((decode_value(cell), rank))
        chosen = rows.take(np.array(owners, np.int64))
        marks = {} if replaced is None else {WITHDRAWN: False}
        values = []
        for (value, rank), more in zip(ranked, self._more(chosen, ctx), strict=True):
            value.pop("rank", None)
            values.append({**value, **more, "rank": rank, **marks})
        times, keys = self._times(chosen, ctx), chosen.key
        if replaced is not None:
            gone = self._more(replaced.gone, ctx)
            values = [*({**more, "rank": None, WITHDRAWN: True} for more in gone), *values]
            times = np.concatenate([self._times(replaced.instead, ctx), times])
            keys = np.concatenate([replaced.gone.key, keys])
        if values:
            send_dicts(ctx, values, to="", timestamp=times, key_index=keys)

    def _more(self, rows: Partials, ctx: TableContext) -> list[dict[str, Any]]:
        """Key and window of each row."""
        columns = self._key_and_window(rows, ctx)
        if not columns:
            return [{}] * len(rows)
        cells = zip(*map(in_python, columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in cells]


class CombinedTop(WindowTop, CombinedAggregate):
    """`WindowTop` that selects the best rows of each task before the shuffle."""
