"""Encodes rows for sinks that need them back as rows: an Arrow stream of timestamps and values.

The same rows always make the same bytes. Arrow leaves padding, offsets, the bytes under a null and
unused dictionary entries undefined, so columns that may have these are rebuilt.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.errors import CorruptCheckpoint
from headrace.model.sink import Part
from headrace.model.values.arrow import ipc_bytes, one_batch
from headrace.model.values.rows import Rows

_FORM = b"headrace.rows"
_PACKED = b"packed"
_COLUMNS = b"columns"


def dump(rows: Rows) -> bytes:
    """Rows as bytes; b"" where there are none. Origins are not encoded."""
    if not len(rows):
        return b""
    # Timestamps are the first column, found by its place: values may have a column of any name.
    arrays = [pa.array(rows.timestamps, pa.int64())]
    names = ["timestamp"]
    if rows.columns is None:
        form = _PACKED
        arrays.append(_without_padding(rows.as_packed().packed))
        names.append("packed")
    else:
        form = _COLUMNS
        arrays += [_without_padding(column) for column in rows.columns.columns]
        names += rows.columns.schema.names
    batch = pa.RecordBatch.from_arrays(arrays, names=names)
    batch = batch.replace_schema_metadata({_FORM: form})
    return ipc_bytes(batch)


def load(data: bytes, *, what: str = "staged rows") -> Rows:
    """The rows of `dump`."""
    if not data:
        return Rows.empty()
    try:
        with pa.ipc.open_stream(data) as reader:
            table = reader.read_all()
    except pa.ArrowInvalid as error:
        raise CorruptCheckpoint(f"{what} cannot be read: {error}") from error
    form = (table.schema.metadata or {}).get(_FORM)
    if form not in (_PACKED, _COLUMNS):
        raise CorruptCheckpoint(f"{what} cannot be read: not rows staged by Headrace")
    batch = one_batch(table.replace_schema_metadata(None))
    timestamps = batch.column(0).to_numpy(zero_copy_only=False)
    if form == _PACKED:
        return Rows(timestamps, packed=batch.column(1))
    columns = pa.RecordBatch.from_arrays(batch.columns[1:], schema=_rest(batch.schema))
    return Rows(timestamps, columns=columns)


def load_parts(parts: Sequence[Part]) -> list[Rows]:
    """The rows of each part that has any."""
    loaded = [load(part.read(), what=f"the rows staged by {part.label}") for part in parts]
    return [rows for rows in loaded if len(rows)]


def _rest(schema: pa.Schema) -> pa.Schema:
    return pa.schema([schema.field(i) for i in range(1, len(schema))])


def _without_padding(column: pa.Array) -> pa.Array:
    kind = column.type
    if isinstance(kind, pa.UuidType):  # its storage would be bytes, and other rows have UUIDs
        return pa.ExtensionArray.from_storage(kind, _without_padding(column.storage))
    if isinstance(column, pa.ExtensionArray):
        column, kind = column.storage, column.type.storage_type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return column
    if pa.types.is_nested(kind):
        return pa.array(column.to_pylist(), kind)  # `take` would keep the bytes under a null struct
    return column.take(pa.array(np.arange(len(column))))
