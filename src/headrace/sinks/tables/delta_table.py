"""A Delta table through the library deltalake: one handle, whose commits are never rebased."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import InvalidPipeline, SinkError, SinkUnavailable
from headrace.sinks.high_water import HighWaterMark
from headrace.sinks.tables.commits import CHECKPOINT, COMMIT, EPOCH, PLACE, CommitRefused
from headrace.sinks.tables.table_types import fields_inside
from headrace.store.location import checked_url, filesystem_path

HISTORY = 100
"""How many commits are looked through for that of an epoch."""
_AWAY = re.compile(
    r"Generic (?!DeltaTable )\w+ error|error sending request|timed out|error trying to connect|"
    r"[Cc]onnection (?:refused|reset|closed|aborted|error)"
)
"""How the library says that a store is away: `Generic S3 error`. Its own errors, `Generic error`
and `Generic DeltaTable error`, come again with each try."""
_LASTING = "File name too long"


class TableAt:
    """A table at a place. It may be missing."""

    def __init__(
        self,
        place: str | os.PathLike[str],
        options: Mapping[str, str],
        partition_by: Sequence[str],
    ) -> None:
        _library()
        self._uri, found = _location(place)
        self._options: dict[str, str] | None = {**found, **options}
        self.shown = self._uri
        self.place = self._uri if "://" in self._uri else os.path.realpath(self._uri)
        self._partition_by = list(partition_by)
        if len(set(partition_by)) != len(partition_by):
            raise InvalidPipeline("sinks.delta: partition_by= names a column twice")
        self._handle: Any = None
        self._was_there = False

    def __getstate__(self) -> dict[str, Any]:
        # Executors only encode: they need no credentials, and no threads of the library.
        return {**self.__dict__, "_handle": None, "_options": None}

    def check_names(self, schema: pa.Schema) -> None:
        for place, fields in fields_inside(schema):
            known: dict[str, str] = {}
            for name in (field.name for field in fields):
                if "\0" in name:
                    raise SinkError(
                        f"column {place + name!r}: a name in Delta has no NUL: rename it"
                    )
                if (other := known.setdefault(name.lower(), name)) != name:
                    raise SinkError(
                        f"columns {place + other!r} and {place + name!r} have one name to Delta, "
                        "which does not tell capital letters from small ones: rename one"
                    )

    def refresh(self) -> bool:
        """Reads the newest version; returns whether there is a table."""
        library = _library()
        with self._explained("be read"):
            try:
                if self._handle is None:
                    options = self._storage()
                    self._handle = library.DeltaTable(self._uri, storage_options=options)
                else:
                    self._handle.update_incremental()
                    if not library.DeltaTable.is_deltatable(self._uri, self._storage()):
                        raise library.exceptions.TableNotFoundError(self._uri)
            except library.exceptions.TableNotFoundError:
                self._handle = None
                if self._was_there:
                    raise SinkUnavailable(
                        f"{self.shown} is missing: put it back (is it still mounted?), or start "
                        "again to begin a new one"
                    ) from None
                return False
        self._was_there = True
        return True

    def is_there(self) -> bool:
        return self._handle is not None

    def create(self, schema: pa.Schema, owner: str | None) -> None:
        """Creates the table, without rows; another driver may just have done so."""
        library = _library()
        self._check_partitions(schema)
        with self._explained("be created"):
            try:
                if "://" not in self._uri:
                    Path(self._uri).mkdir(parents=True, exist_ok=True)
                library.DeltaTable.create(
                    self._uri,
                    schema,
                    mode="error",
                    partition_by=self._partition_by or None,
                    configuration={} if owner is None else {CHECKPOINT: owner},
                    storage_options=self._storage(),
                    raise_if_key_not_exists=False,
                )
            except library.exceptions.DeltaError as error:
                if not library.DeltaTable.is_deltatable(self._uri, self._storage()):
                    raise error
                raise CommitRefused from None
        self.refresh()

    def check(self, schema: pa.Schema | None) -> None:
        """Refuses a table that is partitioned otherwise, or has other columns than a schema."""
        found = list(self._handle.metadata().partition_columns)
        if self._partition_by and found != self._partition_by:
            raise SinkError(
                f"{self.shown} is partitioned by {found}, not by {self._partition_by}: leave out "
                "partition_by=, or write to another table"
            )
        if schema is None:
            return
        mine = self.schema()
        for field in schema:
            if field.name in mine.names and mine.field(field.name).type != field.type:
                raise SinkError(
                    f"{self.shown}: column {field.name!r} is of type {mine.field(field.name).type},"
                    f" but schema= says {field.type}: change schema=, or write to another table"
                )

    def schema(self) -> pa.Schema:
        found = pa.schema(self._handle.schema().to_arrow())
        return pa.schema([pa.field(field.name, field.type, field.nullable) for field in found])

    def owner(self) -> str | None:
        """The checkpoint whose sink has created the table; None if nobody says so."""
        return self._handle.metadata().configuration.get(CHECKPOINT)

    def epoch(self, app: str) -> int:
        """The last epoch of an application in what was read, or 0."""
        if self._handle is None:
            return 0
        with self._explained("say its last epoch (if it was deleted and made anew: start again)"):
            return self._handle.transaction_version(app) or 0

    def find(self, checkpoint: str, epoch: int) -> HighWaterMark | None:
        """Where an epoch came from, if a recent commit says so."""
        if self._handle is None:
            return None
        with self._explained("say its history"):
            for entry in self._handle.history(HISTORY):
                if entry.get(CHECKPOINT) == checkpoint and entry.get(EPOCH) == str(epoch):
                    return HighWaterMark(checkpoint, entry.get(COMMIT, ""), entry.get(PLACE, ""))
        return None

    def append(
        self,
        table: pa.Table,
        *,
        evolve: bool,
        app: tuple[str, int] | None,
        notes: Mapping[str, str],
    ) -> None:
        """Commits rows as the version after the one that was read; `CommitRefused` if it exists."""
        library = _library()
        transactions = [] if app is None else [library.Transaction(*app)]
        version = self._handle.version()
        with self._explained("take an epoch"):
            try:
                library.write_deltalake(
                    self._handle,
                    table,
                    mode="append",
                    schema_mode="merge" if evolve else None,
                    commit_properties=library.CommitProperties(
                        custom_metadata=dict(notes),
                        max_commit_retries=0 if app is not None else None,
                        app_transactions=transactions,
                    ),
                )
            except library.exceptions.CommitFailedError:
                self._handle = None
                # Also raised where the table asks for what the library cannot do.
                if not self.refresh() or self._handle.version() <= version:
                    raise
                raise CommitRefused from None

    def close(self) -> None:
        self._handle, self._was_there = None, False

    def _storage(self) -> dict[str, str]:
        if self._options is None:
            raise SinkError("sinks.delta was pickled: only the driver can deliver")
        return self._options

    def _check_partitions(self, schema: pa.Schema) -> None:
        for name in self._partition_by:
            if name not in schema.names:
                raise SinkError(f"rows have no column {name!r}, which partition_by= names")
            kind = schema.field(name).type
            if pa.types.is_nested(kind) or pa.types.is_binary(kind):
                raise SinkError(
                    f"column {name!r} of partition_by= holds {kind}, which Delta cannot name in a "
                    "directory: partition by text, numbers, truth values, dates or times"
                )
        if len(self._partition_by) == len(schema.names):
            raise SinkError("rows have no columns besides those of partition_by=")

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        exceptions = _library().exceptions
        try:
            yield
        except (SinkError, SinkUnavailable, CommitRefused):
            raise
        except exceptions.SchemaMismatchError as error:
            raise SinkError(f"{self.shown} cannot {doing}: {_line(error)}") from None
        except Exception as error:  # the library also raises Exception itself
            self._handle = None
            message = f"{self.shown} cannot {doing}: {_line(error)}"
            if _LASTING in str(error):
                raise SinkError(
                    f"{message} ({_LASTING}: a value of a partition's column)"
                ) from None
            if isinstance(error, OSError) or _AWAY.search(str(error)):
                raise SinkUnavailable(message) from None
            raise SinkError(message) from None


def _line(error: Exception) -> str:
    """The first line of an error: the library's backtrace follows."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:500]


def _location(place: str | os.PathLike[str]) -> tuple[str, dict[str, str]]:
    """The library's URI and options for a path or a URL as Headrace writes it."""
    path = filesystem_path(place)
    if path is not None:
        return str(Path(path).expanduser().absolute()), {}
    url = checked_url(place, "sinks.delta")
    if url.scheme not in ("s3", "gs", "az"):
        raise InvalidPipeline(
            f"{url.where()}: sinks.delta writes to a directory, s3://, gs:// or az://"
        )
    options = {"timeout": f"{url.timeout_s:g}s"}
    if url.option("allow_http") == "true":
        options["allow_http"] = "true"
    if url.scheme == "s3":
        options["conditional_put"] = "etag"
        for name, key in (("endpoint", "aws_endpoint"), ("region", "aws_region")):
            if url.option(name):
                options[key] = url.option(name)
        styled = "false" if url.option("path_style") == "true" else "true"
        options["aws_virtual_hosted_style_request"] = styled
    if url.scheme == "az" and url.option("account"):
        options["azure_storage_account_name"] = url.option("account")
    return url.where(), options


def _library() -> Any:
    try:
        return importlib.import_module("deltalake")
    except ImportError as error:
        raise InvalidPipeline(
            f"sinks.delta needs a library ({error}): pip install 'headrace[delta]', where the "
            "driver runs"
        ) from None
