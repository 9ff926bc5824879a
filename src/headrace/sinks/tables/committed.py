"""A sink whose epochs are commits of a table (protocol N5): for Delta Lake and for Iceberg.

A commit says its epoch, for an application whose id contains the checkpoint's. So rows and epoch
appear together.

1. Read the table. Its epoch for this application is at or above the one to deliver: stop.
2. Commit exactly the next version of what was read. The library may not rebase: it would look for
   conflicts of data, and could accept an epoch a second time.
3. CommitRefused, because somebody else has committed: begin again at 1. So does a driver that has
   created the table: what it reads then may be the epoch of another.

So of two drivers with one epoch one commits, and one that sleeps between 1 and 2 changes nothing.
An epoch without rows makes no version of the table; its mark lies in the checkpoint.

All of this happens on the driver: threads of the libraries do not survive a fork.
"""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa

from headrace.errors import InvalidPipeline, SinkError, SinkUnavailable
from headrace.failpoints import reach
from headrace.model.sink import Delivery, Opening, Sink
from headrace.model.values.rows import Rows
from headrace.sinks.columns import INSTANT, check_schema
from headrace.sinks.fitting.arrays import Cells
from headrace.sinks.high_water import HighWater, HighWaterMark, open_high_water
from headrace.sinks.rows_file import dump, load_parts
from headrace.sinks.tables.commits import (
    CHECKPOINT,
    COMMIT,
    EPOCH,
    PLACE,
    CommitRefused,
    TableFormat,
)
from headrace.sinks.tables.table_types import (
    as_table,
    cells_of,
    grown,
    inferred,
    schema_for,
    shows_nothing,
)

TRIES = 50
"""How often an epoch is tried at once, while others commit to the table."""


class CommittedTable(Sink):
    """The sink behind `delta` and `iceberg`."""

    def __init__(
        self,
        kind: str,
        table: TableFormat,
        *,
        mode: str,
        schema: pa.Schema | None,
        timestamp: str | None,
        times: tuple[str, ...],
        evolve: bool,
        shared: bool,
    ) -> None:
        check_schema(schema, what=f"sinks.{kind}")
        if mode != "append":
            raise InvalidPipeline(f"sinks.{kind}: mode={mode!r} is unknown: there is append")
        self.kind = kind
        self.schema = None if schema is None else _with(schema_for(schema), timestamp)
        self.timestamp = timestamp
        self.times = times
        self.evolve = evolve
        self.shared = shared
        self._table = table
        if self.schema is not None:
            try:
                table.check_names(self.schema)
            except SinkError as error:
                raise InvalidPipeline(f"sinks.{kind}: schema=: {error}") from None
        self._forget()

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._mark: HighWater | None = None
        """The last epoch without rows."""
        self._me = HighWaterMark("")
        self._commits: dict[int, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_mark": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        self._forget()

    def __deepcopy__(self, memo: dict[int, Any]) -> CommittedTable:
        return self

    def __copy__(self) -> CommittedTable:
        return self

    def __repr__(self) -> str:
        return f"<sinks.{self.kind}: {self._table.shown}>"

    def identity(self) -> str:
        return f"{self.kind}:{self._table.place}"

    def encode(self, rows: Rows) -> bytes:
        if len(rows):
            cells = self._cells(rows)
            if not cells:
                raise SinkError(f"{len(rows)} rows have no columns: a table cannot hold them")
            schema = self.schema
            if schema is None:
                schema = inferred([cells], self.times)
                self._table.check_names(schema)
            self._refuse_new(cells, schema)
            as_table([{n: c for n, c in cells.items() if n in schema.names} or cells], schema)
        return dump(rows)

    def _cells(self, rows: Rows) -> dict[str, Cells]:
        found = cells_of(rows, self.timestamp)
        if not found and self.schema is not None and len(self.schema):  # empty dicts
            return {self.schema.names[0]: [None] * len(rows)}
        return found

    def _refuse_new(self, cells: dict[str, Cells], schema: pa.Schema) -> None:
        if self.schema is None:
            return
        for name in cells:
            if name not in schema.names:
                raise SinkError(f"rows have a column {name!r} that schema= does not name")

    def _refuse_lacking(self, table: pa.Schema) -> None:
        for field in table:
            if (
                self.schema is not None
                and not field.nullable
                and field.name not in self.schema.names
            ):
                raise SinkError(
                    f"{self._table.shown}: column {field.name!r} takes no None, and schema= does "
                    "not name it: name it there, or change the table"
                )

    def open(self, opening: Opening) -> None:
        with self._lock:
            self._mark = None
            self._me = HighWaterMark(opening.checkpoint, "", opening.place)
            self._commits = dict(opening.commits)
            self._table.close()
            mark = open_high_water(opening)
            if self._table.refresh():
                self._table.check(self.schema)
                self._refuse_lacking(self._table.schema())
                owner = self._table.owner()
                if not self.shared and owner not in (None, opening.checkpoint):
                    raise self._foreign(owner)
                self._verify_known(self._table.epoch(self._app()))
            self._mark = mark

    def high_water(self) -> int:
        with self._lock:
            self._table.refresh()
            return self._water()

    def verify(self, epoch: int, commit: str) -> None:
        with self._lock:
            self._table.refresh()
            self._verify(epoch, commit)

    def deliver(self, delivery: Delivery) -> None:
        if delivery.checkpoint != self._me.checkpoint:
            raise SinkError(
                f"{self._table.shown} is open for the checkpoint {self._me.checkpoint}, not for "
                f"{delivery.checkpoint}"
            )
        parts = [self._cells(rows) for rows in load_parts(delivery.parts)]
        with self._lock:
            if not parts:
                self._skip(delivery)
            elif delivery.weak:
                self._append(parts, delivery)
            else:
                self._publish(parts, delivery)

    def tidy(self) -> None:
        if self._mark is not None:
            self._mark.tidy()

    def close(self) -> None:
        self._table.close()

    def _publish(self, parts: list[dict[str, Cells]], delivery: Delivery) -> None:
        for _ in range(TRIES):
            # 1. One handle says what the table has, and commits.
            self._table.refresh()
            if self._water() >= delivery.epoch:
                self._verify(delivery.epoch, delivery.commit)
                return
            self._verify_known(self._table.epoch(self._app()))
            if not self._table.is_there():
                # Whoever sees the new table may commit this epoch at once: begin again at 1.
                self._create(parts)
                continue
            reach("before-claim")
            # 2. Exactly the next version, or nothing.
            try:
                self._append(parts, delivery)
            except CommitRefused:
                continue
            reach("after-publish")
            self._commits[delivery.epoch] = delivery.commit
            # A copy of the checkpoint may just have had this epoch without rows.
            self._marked().verify(delivery.epoch, delivery.commit)
            return
        raise SinkUnavailable(
            f"{self._table.shown}: others have committed to the table {TRIES} times while epoch "
            f"{delivery.epoch} was tried"
        )

    def _skip(self, delivery: Delivery) -> None:
        """Records that an epoch has no rows."""
        if delivery.weak:
            return
        self._table.refresh()
        if self._water() >= delivery.epoch:
            self._verify(delivery.epoch, delivery.commit)
            return
        self._marked().advance(delivery.epoch, delivery.commit, empty=True)
        self._commits[delivery.epoch] = delivery.commit
        reach("after-high-water")

    def _create(self, parts: list[dict[str, Cells]]) -> None:
        """Creates the table, and reads it; another driver may just have done so."""
        schema = self.schema if self.schema is not None else inferred(parts, self.times)
        if not len(schema):
            raise SinkError(
                f"{self._table.shown} is missing, and no column of its first epoch has a value "
                "that shows its type: give the sink a schema="
            )
        try:
            self._table.create(schema, None if self.shared else self._me.checkpoint)
        except CommitRefused:
            self._table.refresh()

    def _append(self, parts: list[dict[str, Cells]], delivery: Delivery) -> None:
        if not self._table.is_there():
            self._create(parts)
        schema = self._table.schema()
        known = set(schema.names)
        rows = [
            {n: c for n, c in part.items() if n in known or not shows_nothing(c)} for part in parts
        ]
        lacking = [{n: c for n, c in part.items() if n not in known} for part in rows]
        new = inferred(lacking, self.times)
        if len(new) and not self.evolve:
            raise SinkError(
                f"{self._table.shown} has no column {new.names[0]!r} ({new.field(0).type}), which "
                "rows have. Add it to the table, or say evolve=True; then start again"
            )
        given = schema
        try:
            if self.evolve:
                schema = pa.schema([_grown(field, rows) for field in schema])
            for field in new:
                schema = schema.append(field)
            table = as_table([left or part for left, part in zip(rows, parts)], schema)
        except SinkError as error:
            raise SinkError(
                f"{self._table.shown}, {error}. The epoch is committed; a schema= refuses such "
                "rows before that, and evolve=True adds names that are new inside"
            ) from None
        self._table.append(
            table,
            evolve=schema != given,
            app=None if delivery.weak else (self._app(), delivery.epoch),
            notes={
                CHECKPOINT: delivery.checkpoint,
                EPOCH: str(delivery.epoch),
                COMMIT: delivery.commit,
                PLACE: delivery.place,
            },
        )

    def _water(self) -> int:
        return max(self._marked().read(), self._table.epoch(self._app()))

    def _verify(self, epoch: int, commit: str) -> None:
        mine = HighWaterMark(self._me.checkpoint, commit, self._me.place)
        self._marked().verify(epoch, commit)
        mine.require(self._table.find(self._me.checkpoint, epoch), epoch, self._table.shown)

    def _verify_known(self, epoch: int) -> None:
        """Refuses a table whose last epoch is of a copy of this checkpoint."""
        if epoch and (commit := self._commits.get(epoch)):
            mine = HighWaterMark(self._me.checkpoint, commit, self._me.place)
            mine.require(self._table.find(self._me.checkpoint, epoch), epoch, self._table.shown)

    def _marked(self) -> HighWater:
        if self._mark is None:
            raise SinkError("the sink was not opened: open() comes first")
        return self._mark

    def _app(self) -> str:
        return f"headrace/{self._me.checkpoint}"

    def _foreign(self, owner: str | None) -> SinkError:
        return SinkError(
            f"{self._table.shown} belongs to the checkpoint {owner}, not to {self._me.checkpoint}: "
            "choose a fresh table, or say shared=True if several pipelines write to it, or delete "
            "the old one if its rows are not needed"
        )


def _with(schema: pa.Schema, timestamp: str | None) -> pa.Schema:
    if timestamp is None or timestamp in schema.names:
        return schema
    return schema.append(pa.field(timestamp, INSTANT))


def _grown(field: pa.Field, parts: list[dict[str, Cells]]) -> pa.Field:
    cells = [part[field.name] for part in parts if field.name in part]
    return field.with_type(grown(field.name, cells, field.type))
