"""Lookup tables that are read again while the pipeline runs.

The driver reads them (`Refresh.read`), keeps each version as a file that is named by its content,
and every plan names the version that its epoch uses. So all tasks, reruns and replays of an epoch
use the same rows.
"""

from __future__ import annotations

import copy
from typing import Any

import pyarrow as pa

from headrace.errors import InvalidPipeline, SourceError
from headrace.model.source import Source
from headrace.model.values.arrow import ipc_bytes, one_batch
from headrace.model.values.time import Duration, duration
from headrace.operators.lookup.table import LookupTable, lookup_table

_VERSIONS_MAX = 8
_versions: dict[str, LookupTable] = {}
"""The versions that this process used last, by their digests."""


class Refresh:
    """How a lookup table is read again, and how often."""

    def __init__(self, given: Any, every: Duration, *, key: tuple[str, ...], where: str) -> None:
        if not isinstance(given, Source) and not callable(given):
            raise InvalidPipeline(
                f"{where}: refresh= needs a table that can be read again: a bounded source, or a "
                f"function that returns a frame, a dict or a list, not {type(given).__name__}"
            )
        self.every_us = duration(every, what=f"{where}: refresh=")
        if self.every_us <= 0:
            raise InvalidPipeline(f"{where}: refresh= is longer than nothing, not {every!r}")
        self._given, self._key, self._where = given, key, where

    @property
    def shown(self) -> str:
        """What it means to the pipeline, as text."""
        return f"refreshed every {self.every_us} us"

    def read(self) -> LookupTable:
        """The table as it is now."""
        given = copy.copy(self._given) if isinstance(self._given, Source) else self._given()
        return lookup_table(given, key=self._key, where=self._where)

    def columns_of(self, side: LookupTable) -> tuple[str, ...] | None:
        """The columns of a version; None if it is empty and does not tell them."""
        names = tuple(side.table.column_names)
        return names if side.table.num_rows or set(names) - set(self._key) else None

    def read_again(self, columns: tuple[str, ...] | None) -> LookupTable:
        """The table as it is now; SourceError if it has other columns than before, where these are
        known. A table without rows has the columns that it had."""
        found = self.read()
        if columns is None:
            return found
        if not found.table.num_rows:
            return LookupTable(pa.table({name: pa.nulls(0) for name in columns}))
        now = tuple(found.table.column_names)
        if sorted(now) != sorted(columns):
            raise ChangedColumns(
                f"{self._where}: the lookup table had the columns {', '.join(columns)}, and now "
                f"has {', '.join(now) or 'none'}: give it the old ones again, or change the "
                "pipeline and start it"
            )
        return found


class ChangedColumns(SourceError):
    """A lookup table that was read again has other columns."""


def bytes_of(side: LookupTable) -> bytes:
    """The content of a version's file; the digest of the table is its digest."""
    return ipc_bytes(one_batch(side.table))


def version_of(digest: str, data: pa.Buffer) -> LookupTable:
    """A version from the content of its file, decoded once per process while it is in use."""
    found = _versions.pop(digest, None)
    if found is None:
        found = LookupTable.__new__(LookupTable)
        found.digest = digest
        with pa.ipc.open_stream(data) as reader:
            found.table = reader.read_all()
    _versions[digest] = found  # the newest last
    while len(_versions) > _VERSIONS_MAX:
        del _versions[next(iter(_versions))]
    return found
