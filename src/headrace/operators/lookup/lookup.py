"""Look-up in a lookup table: a keyless step on columns, in the task that produces its input.

Rows keep their order; several matches of a row are in the order of the lookup table. A null never
matches, as in SQL. Records that do not all have the same columns and types are looked up one by
one, so that results do not depend on how the input is cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.errors import InvalidRecord
from headrace.model.computation import Computation
from headrace.model.values.arrow import one_array
from headrace.model.values.column_names import as_columns
from headrace.model.values.rows import Rows
from headrace.operators.columns.forms import Cells, canonical, produce
from headrace.operators.columns.groups import Ints
from headrace.operators.joins.rows import uniform
from headrace.operators.lookup.index import LookupIndex, is_packed
from headrace.operators.lookup.table import LookupTable
from headrace.operators.lookup.versions import Refresh, version_of

if TYPE_CHECKING:
    from headrace.model.context import TableContext

_indexes: dict[tuple[str, tuple[str, ...]], LookupIndex] = {}
"""Indexes by content and columns, each built once per process."""
_INDEXES_MAX = 32
"""If there are more, those that were used longest ago are forgotten: tables are refreshed."""


def index_of(side: LookupTable, columns: tuple[str, ...]) -> LookupIndex:
    place = (side.digest, columns)
    found = _indexes.pop(place, None) or LookupIndex(side.table, columns)
    _indexes[place] = found  # the newest last
    while len(_indexes) > _INDEXES_MAX:
        del _indexes[next(iter(_indexes))]
    return found


class Lookup(Computation):
    """Adds the columns of a lookup table's matching row."""

    reads_values = False  # it reads the records unchanged

    def __init__(
        self,
        side: LookupTable,
        on: Mapping[str, str],
        how: str,
        where: str,
        refresh: Refresh | None = None,
    ) -> None:
        self.side = side
        # Part of the fingerprint: other content makes another pipeline, unless it is refreshed.
        self.content = side.digest if refresh is None else refresh.shown
        self.refresh = refresh
        self.on = tuple(on.items())
        self.how = how
        self.where = where

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Looks up all rows of a task."""
        planned = None if self.refresh is None else ctx.planned_table()
        side = self.side if planned is None else version_of(*planned)
        index = index_of(side, tuple(column for _, column in self.on))
        added = self._added(side)
        (given,) = ctx.inputs()
        rows = given.rows
        values = None if rows.columns is not None else rows.values()
        columns: Mapping[str, pa.Array] | None
        if values is None:
            batch: Any = rows.columns
            columns = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
        else:
            columns = uniform(values) if all(type(v) is dict for v in values) else None
        wanted = [(columns or {}).get(name) for name, _ in self.on]
        found = None if any(c is None for c in wanted) else index.find(wanted)
        if columns is None or found is None or _clash(added, columns):
            given_values = rows.values() if values is None else values
            self._one_by_one(rows, given_values, index, added, ctx)
            return
        asking, matched = self._with_unmatched(len(rows), *found)
        made: dict[str, Cells] = {n: c.take(pa.array(asking)) for n, c in columns.items()}
        schema = side.table.schema
        for name in added:
            if is_packed(schema.field(name)):
                cells = index.cells(name)
                made[name] = [None if at is None else cells[at] for at in matched.to_pylist()]
            else:
                made[name] = one_array(side.table.column(name).take(matched))
        if values is not None:
            # A null has no type here, and other rows must not give it one.
            made = {n: c if isinstance(c, list) else canonical(c) for n, c in made.items()}
        produce(ctx, made, rows.timestamps[asking], asking)

    def _with_unmatched(self, count: int, asking: Ints, rows: Ints) -> tuple[Ints, pa.Array]:
        """The pairs and, with `how="left"`, the rows without a match, at their positions."""
        if self.how != "left":
            return asking, pa.array(rows)
        alone = np.setdiff1d(np.arange(count), asking)
        order = np.argsort(np.concatenate([asking, alone]), kind="stable")
        missing = np.concatenate([np.zeros(len(rows), bool), np.ones(len(alone), bool)])[order]
        rows = np.concatenate([rows, np.zeros(len(alone), np.int64)])[order]
        return np.concatenate([asking, alone])[order], pa.array(rows, mask=missing)

    def _one_by_one(
        self,
        rows: Rows,
        values: list[Any],
        index: LookupIndex,
        added: Sequence[str],
        ctx: TableContext,
    ) -> None:
        columns = {name: index.cells(name) for name in added}
        nothing = dict.fromkeys(added)
        made: list[Any] = []
        causes: list[int] = []
        for i, value in enumerate(values):
            try:
                row = as_columns(value, where=self.where)
                if clash := _clash(added, row):
                    raise InvalidRecord(clashing(self.where, clash))
                # A column that is missing in a record, as in sparse JSON, is null: no match.
                cells = [(name, row.get(name)) for name, _ in self.on]
                found = index.rows_of(cells, self.where)
            except InvalidRecord as error:
                ctx.set_aside(error, i, value, int(rows.timestamps[i]))
                continue
            matches = [{n: cells[at] for n, cells in columns.items()} for at in found]
            if not matches and self.how == "left":
                matches = [nothing]
            made += [{**row, **match} for match in matches]
            causes += [i] * len(matches)
        asking = np.array(causes, np.int64)
        ctx.produce_values(made, timestamp=rows.timestamps[asking], causes=asking)

    def _added(self, side: LookupTable) -> list[str]:
        """The columns that a version adds, in the order of the first version.

        They are no part of the fingerprint, because a first version without rows does not tell
        them.
        """
        looked_up = {column for _, column in self.on}
        first = self.side.table.column_names
        names = [name for name in side.table.column_names if name not in looked_up]
        return sorted(names, key=lambda name: first.index(name) if name in first else len(first))


def _clash(added: Sequence[str], columns: Mapping[str, Any]) -> list[str]:
    return [name for name in added if name in columns]


def clashing(where: str, names: list[str]) -> str:
    """The message for a column that both the stream and the lookup table have."""
    return (
        f"{where}: the stream and the lookup table both have a column {names[0]!r}: rename or drop "
        "it in the lookup table"
    )
