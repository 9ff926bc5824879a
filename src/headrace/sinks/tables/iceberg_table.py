"""An Iceberg table through the library pyiceberg: one handle, whose commits are never rebased.

A commit adds a snapshot whose summary names checkpoint, commit and epoch. In the same commit the
epoch becomes a property of the table, `headrace.epoch.<application>`: snapshots expire, properties
stay. The commit demands that the table's branch is at the snapshot which the handle has read.
"""

from __future__ import annotations

import errno
import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from headrace.errors import InvalidPipeline, SinkError, SinkUnavailable
from headrace.sinks.high_water import HighWaterMark
from headrace.sinks.tables.commits import CHECKPOINT, COMMIT, EPOCH, PLACE, CommitRefused
from headrace.sinks.tables.table_types import fields_inside, type_for

RETRIES = "commit.retry.num-retries"
HISTORY = 100
"""How many snapshots are looked through for that of an epoch."""
_LASTING = ("NoSuchNamespace", "NoSuchProperty", "Validation", "Resolve", "NotInstalled",
            "UnsupportedPyArrowType", "Forbidden", "Unauthorized", "BadRequest")  # fmt: skip
"""Errors of the library, or of a catalog, that a person must end."""
_OF_VALUES = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError, AssertionError,
              NotImplementedError, ImportError, pa.ArrowException)  # fmt: skip
"""What the rows, or the code that handles them, raise again with each try: no outage."""


class TableIn:
    """A table in a catalog. It may be missing."""

    def __init__(
        self, name: str, catalog: str, properties: Mapping[str, str], partition_by: Sequence[str]
    ) -> None:
        _library("pyiceberg.catalog")
        if "." not in name or not all(name.split(".")):
            raise InvalidPipeline(f"sinks.iceberg: {name!r} has no namespace: 'shop.orders'")
        if len(set(partition_by)) != len(partition_by):
            raise InvalidPipeline("sinks.iceberg: partition_by= names a column twice")
        self._name, self._catalog_name = name, catalog
        self._properties: dict[str, str] | None = dict(properties)
        self.shown = self.place = f"{catalog}/{name}"
        self._partition_by = list(partition_by)
        self._catalog: Any = None
        self._handle: Any = None
        self._was_there = False

    def __getstate__(self) -> dict[str, Any]:
        # Executors only encode: they need no credentials.
        return {**self.__dict__, "_handle": None, "_catalog": None, "_properties": None}

    def check_names(self, schema: pa.Schema) -> None:
        for place, fields in fields_inside(schema):
            if any(not field.name for field in fields):
                raise SinkError(f"column {place!r}: a name in Iceberg is not empty: rename it")

    def refresh(self) -> bool:
        missing = _library("pyiceberg.exceptions").NoSuchTableError
        with self._explained("be read"):
            try:
                self._handle = self._open().load_table(self._name)
            except missing:
                self._handle = None
                if self._was_there:
                    raise SinkUnavailable(
                        f"{self.shown} is missing: put it back, or start again to begin a new one"
                    ) from None
                return False
        # The library would rebase a commit that comes too late. Only this handle says so.
        self._handle.metadata.properties[RETRIES] = "0"
        self._was_there = True
        return True

    def is_there(self) -> bool:
        return self._handle is not None

    def create(self, schema: pa.Schema, owner: str | None) -> None:
        for name in self._partition_by:
            if name not in schema.names:
                raise SinkError(f"rows have no column {name!r}, which partition_by= names")
        errors = _library("pyiceberg.exceptions")
        properties = {RETRIES: "0"} | ({} if owner is None else {CHECKPOINT: owner})
        with self._explained("be created"):
            catalog = self._open()
            namespace = self._name.rpartition(".")[0]
            try:
                catalog.create_namespace_if_not_exists(namespace)
            except Exception:  # another driver was a moment earlier: catalogs say so in many ways
                if not catalog.namespace_exists(namespace):
                    raise
            try:
                made = catalog.create_table_transaction(
                    self._name, schema=schema, properties=properties
                )
                if self._partition_by:
                    with made.update_spec() as spec:
                        for name in self._partition_by:
                            spec.add_identity(name)
                made.commit_transaction()
            except (errors.TableAlreadyExistsError, errors.CommitFailedException):
                raise CommitRefused from None
        self.refresh()

    def check(self, schema: pa.Schema | None) -> None:
        if self._partition_by and (found := self._partitions()) != self._partition_by:
            raise SinkError(
                f"{self.shown} is partitioned by {found}, not by {self._partition_by}: leave out "
                "partition_by=, or write to another table"
            )
        if schema is None:
            return
        mine = self.schema()
        for field in schema:
            if field.name in mine.names and mine.field(field.name).type != _held(field.type):
                raise SinkError(
                    f"{self.shown} has a column {field.name!r} of type "
                    f"{mine.field(field.name).type}, but schema= says {field.type}: change "
                    "schema=, or write to another table"
                )

    def schema(self) -> pa.Schema:
        found = self._handle.schema().as_arrow()
        return pa.schema([pa.field(f.name, _own(f.type, f.name), f.nullable) for f in found])

    def owner(self) -> str | None:
        return self._handle.properties.get(CHECKPOINT)

    def epoch(self, app: str) -> int:
        if self._handle is None:
            return 0
        return int(self._handle.properties.get(f"{EPOCH}.{app}", 0))

    def find(self, checkpoint: str, epoch: int) -> HighWaterMark | None:
        if self._handle is None:
            return None
        newest = sorted(self._handle.snapshots(), key=lambda each: each.timestamp_ms)[-HISTORY:]
        for snapshot in reversed(newest):
            said = snapshot.summary.additional_properties if snapshot.summary else {}
            if said.get(CHECKPOINT) == checkpoint and said.get(EPOCH) == str(epoch):
                return HighWaterMark(checkpoint, said.get(COMMIT, ""), said.get(PLACE, ""))
        return None

    def append(
        self,
        table: pa.Table,
        *,
        evolve: bool,
        app: tuple[str, int] | None,
        notes: Mapping[str, str],
    ) -> None:
        refused = _library("pyiceberg.exceptions").CommitFailedException
        with self._explained("take an epoch"):
            try:
                with self._handle.transaction() as made:
                    if evolve:
                        with made.update_schema() as columns:
                            columns.union_by_name(table.schema)
                    made.append(table, snapshot_properties=dict(notes))
                    if app is not None:
                        made.set_properties({f"{EPOCH}.{app[0]}": str(app[1])})
            except refused:
                self._handle = None
                raise CommitRefused from None

    def close(self) -> None:
        self._handle, self._catalog, self._was_there = None, None, False

    def _open(self) -> Any:
        if self._properties is None:
            raise SinkError("sinks.iceberg was pickled: only the driver can deliver")
        if self._catalog is None:
            library = _library("pyiceberg.catalog")
            self._catalog = library.load_catalog(self._catalog_name, **self._properties)
        return self._catalog

    def _partitions(self) -> list[str]:
        names = {field.field_id: field.name for field in self._handle.schema().fields}
        return [
            names.get(field.source_id, field.name)
            if str(field.transform) == "identity"
            else f"{field.transform}({names.get(field.source_id, field.name)})"
            for field in self._handle.spec().fields
        ]

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (SinkError, SinkUnavailable, CommitRefused):
            raise
        except Exception as error:  # each catalog has its own errors
            self._handle = None
            kind = type(error).__name__
            text = f"{kind}: {(str(error).strip().splitlines() or [''])[0][:500]}"
            if isinstance(error, OverflowError):
                text += (
                    ". The library holds times of the years 1 to 9999: make others numbers or text"
                )
            lasts = isinstance(error, _OF_VALUES) or kind.startswith(_LASTING)
            lasts = lasts or getattr(error, "errno", None) == errno.ENAMETOOLONG
            found = SinkError if lasts else SinkUnavailable
            raise found(f"{self.shown} cannot {doing}: {text}") from None


def _own(kind: pa.DataType, name: str) -> pa.DataType:
    """The type of a column that the table has; some of these a sink does not give to new ones."""
    own = (pa.types.is_fixed_size_binary(kind), pa.types.is_time(kind))
    return kind if any(own) or isinstance(kind, pa.UuidType) else type_for(kind, name)


def _held(kind: pa.DataType) -> pa.DataType:
    """The type of an Iceberg column for a type of `table_types`: it has no small integers."""
    return pa.int32() if pa.types.is_integer(kind) and kind.bit_width < 32 else kind


def _library(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InvalidPipeline(
            f"sinks.iceberg needs a library ({error}): pip install 'headrace[iceberg]', where the "
            "driver runs"
        ) from None
