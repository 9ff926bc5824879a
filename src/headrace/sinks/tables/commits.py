"""What a sink needs of a table format whose commits are atomic: Delta Lake, Iceberg."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa

from headrace.sinks.high_water import HighWaterMark

CHECKPOINT, EPOCH = "headrace.checkpoint", "headrace.epoch"
COMMIT, PLACE = "headrace.commit", "headrace.place"
"""What a commit of the table says of its epoch. The first is also a property of the table."""


class CommitRefused(Exception):
    """Somebody else has committed since the table was read."""


class TableFormat(Protocol):
    """A table at a place. It may be missing. `refresh` reads it; the rest is of what it read."""

    shown: str
    place: str
    """The same for all names of one place, as far as they are known without the table."""

    def check_names(self, schema: pa.Schema) -> None:
        """Refuses columns with names that such a table cannot have; asks nobody."""

    def refresh(self) -> bool:
        """Reads the newest version; returns whether there is a table."""

    def is_there(self) -> bool:
        """Whether there was a table."""

    def create(self, schema: pa.Schema, owner: str | None) -> None:
        """Creates the table, without rows; `CommitRefused` if another driver just has."""

    def check(self, schema: pa.Schema | None) -> None:
        """Refuses a table that is partitioned otherwise, or has other columns than a schema."""

    def schema(self) -> pa.Schema:
        """Its columns, in the types of `table_types`."""

    def owner(self) -> str | None:
        """The checkpoint whose sink has created the table; None if nobody says so."""

    def epoch(self, app: str) -> int:
        """The last epoch of an application, or 0."""

    def find(self, checkpoint: str, epoch: int) -> HighWaterMark | None:
        """Where an epoch came from, if a recent commit says so."""

    def append(
        self,
        table: pa.Table,
        *,
        evolve: bool,
        app: tuple[str, int] | None,
        notes: Mapping[str, str],
    ) -> None:
        """Commits rows as the version after the one that was read; `CommitRefused` if it exists."""

    def close(self) -> None:
        """Forgets what was read."""
