"""`headrace_epochs`: the last epoch of each sink, in the database that has its rows (protocol F4).

There is one row for each checkpoint and table. It changes in the transaction that writes an epoch's
rows, so both happen or neither does.

- A driver that takes over registers its generation. An update asks for that generation: a driver
  that was replaced changes nothing, whatever it still sends.
- An update asks for a smaller epoch, so an epoch that is repeated changes nothing.
- The row names the commit of its epoch: a copy of the checkpoint, which has other commits, is
  refused. So is another checkpoint on the same table, unless the table is shared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import Fenced, SinkError
from headrace.model.sink import Delivery, Opening
from headrace.sinks.high_water import HighWaterMark

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composed

TABLE = "headrace_epochs"
_LOCK = 0x4845_4144_5241_4345  # "HEADRACE"; two drivers must not create the table at once

_COLUMNS = """(
    checkpoint text NOT NULL,
    sink text NOT NULL,
    epoch bigint NOT NULL,
    generation bigint NOT NULL,
    commit_id text NOT NULL,
    place text NOT NULL,
    delivered_at timestamptz,
    PRIMARY KEY (checkpoint, sink)
)"""


class TableMark:
    """The mark of one sink."""

    def __init__(self, schema: str, table: str, opening: Opening) -> None:
        self.sink = f"{schema}.{table}"
        self.checkpoint = opening.checkpoint
        self._schema = schema
        self._generation = opening.generation
        self._place = opening.place
        self._me = [opening.checkpoint, self.sink]

    def register(self, cursor: psycopg.Cursor[Any], opening: Opening, *, shared: bool) -> None:
        """Takes the table for this driver; refuses other checkpoints, copies and late drivers."""
        take_lock(cursor)
        cursor.execute("SELECT to_regclass(%s) IS NULL", [self._shown()])
        if cursor.fetchone() == (True,):
            cursor.execute(self._sql("CREATE TABLE {} ") + _plain(_COLUMNS))
        if not shared:
            cursor.execute(
                self._sql("SELECT checkpoint FROM {} WHERE sink = %s AND checkpoint <> %s"),
                [self.sink, self.checkpoint],
            )
            if found := cursor.fetchone():
                raise self._foreign(found[0])
        cursor.execute(
            self._sql(
                "INSERT INTO {0} AS mark VALUES (%s, %s, 0, %s, '', %s) "
                "ON CONFLICT (checkpoint, sink) DO UPDATE SET generation = excluded.generation "
                "WHERE mark.generation <= excluded.generation "
                "RETURNING epoch, commit_id, place"
            ),
            [*self._me, self._generation, self._place],
        )
        row = cursor.fetchone()
        if row is None:
            raise self._fenced(self._read(cursor)[1])
        epoch, commit, place = row
        self._require(epoch, opening.commits.get(epoch, ""), commit, place)

    def high_water(self, cursor: psycopg.Cursor[Any]) -> int:
        """The last epoch that the table has, or 0."""
        return self._read(cursor)[0]

    def verify(self, cursor: psycopg.Cursor[Any], epoch: int, commit: str) -> None:
        """Raises IncompatibleState where the last epoch came from another commit."""
        found, _, theirs, place = self._read(cursor)
        if found == epoch:
            self._require(epoch, commit, theirs, place)

    def advance(self, cursor: psycopg.Cursor[Any], delivery: Delivery) -> bool:
        """Raises the mark to an epoch; False if the table has it. Its row stays locked."""
        cursor.execute(
            self._sql(
                "UPDATE {} SET epoch = %s, commit_id = %s, place = %s, delivered_at = now() "
                "WHERE checkpoint = %s AND sink = %s AND generation = %s AND epoch < %s"
            ),
            [
                delivery.epoch, delivery.commit, delivery.place,
                *self._me, self._generation, delivery.epoch,
            ],
        )  # fmt: skip
        if cursor.rowcount == 1:
            return True
        epoch, generation, commit, place = self._read(cursor)
        if epoch == delivery.epoch:
            self._require(epoch, delivery.commit, commit, place)
        if epoch >= delivery.epoch:
            return False
        raise self._fenced(generation)

    def _read(self, cursor: psycopg.Cursor[Any]) -> tuple[int, int, str, str]:
        cursor.execute(
            self._sql(
                "SELECT epoch, generation, commit_id, place FROM {} "
                "WHERE checkpoint = %s AND sink = %s"
            ),
            self._me,
        )
        found = cursor.fetchone()
        if found is None:
            raise SinkError(
                f"{self._shown()} has lost its row for {self.sink} and the checkpoint "
                f"{self.checkpoint}: put it back, or start again to begin a new one"
            )
        return found

    def _require(self, epoch: int, commit: str, theirs: str, place: str) -> None:
        mine = HighWaterMark(self.checkpoint, commit, self._place)
        mine.require(HighWaterMark(self.checkpoint, theirs, place), epoch, f"table {self.sink}")

    def _fenced(self, generation: int) -> Fenced:
        return Fenced(
            f"table {self.sink} is written by generation {generation} of this checkpoint, and this "
            f"driver is generation {self._generation}: a newer driver has taken over, or a copy of "
            "the checkpoint runs"
        )

    def _foreign(self, owner: str) -> SinkError:
        return SinkError(
            f"table {self.sink} belongs to the checkpoint {owner}, not to {self.checkpoint}: "
            "choose a fresh table, say shared=True if several pipelines write to it, or, if that "
            f"checkpoint is gone, delete its row from {self._shown()}"
        )

    def _shown(self) -> str:
        schema = self._schema.replace('"', '""')
        return f'"{schema}".{TABLE}'

    def _sql(self, text: str) -> Composed:
        from psycopg import sql

        return sql.SQL(text).format(sql.Identifier(self._schema, TABLE))


def take_lock(cursor: psycopg.Cursor[Any]) -> None:
    """One driver at a time creates tables; the lock ends with the transaction."""
    cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])


def _plain(text: str) -> Any:
    from psycopg import sql

    return sql.SQL(text)
