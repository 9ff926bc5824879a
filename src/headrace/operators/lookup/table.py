"""A lookup table: a bounded table that every task has, for look-ups.

It is read when the pipeline is built, and is part of the pipeline from then on: it is pickled with
the pipeline, identified by the digest of its content (which is part of the pipeline's fingerprint),
and unpacked once per worker process.

If a table is built from dicts, and the cells of a column fit no Arrow type unchanged (numbers and
text, lists, integers of more than 64 bits), the cells are kept packed. Columns that are used for
look-ups must fit an Arrow type.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import xxhash

from headrace.errors import InvalidPipeline, InvalidRecord, SourceError
from headrace.model.source import Source, Workspace
from headrace.model.values.arrow import ipc_bytes, one_batch, python_list
from headrace.model.values.codec import packed_exactly
from headrace.operators.lookup.index import PACKED, lookup_form
from headrace.store.disk import DiskStore

BYTES_MAX = 1 << 30
_READ_RECORDS = 100_000
_PLAIN = {bool, int, float, str, bytes}

_loaded: dict[str, pa.Table] = {}


class LookupTable:
    """An Arrow table that is unpacked once per process, even if it is received several times."""

    __slots__ = ("digest", "table")

    def __init__(self, table: pa.Table) -> None:
        data = ipc_bytes(one_batch(table))
        if len(data) > BYTES_MAX:
            raise InvalidPipeline(
                f"a lookup table has at most {BYTES_MAX:,} bytes, this one {len(data):,}: read it "
                "as a stream and use join_asof"
            )
        self.digest = xxhash.xxh3_128_hexdigest(data)
        self.table = table

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpack, (self.digest, ipc_bytes(one_batch(self.table)))


def lookup_table(given: Any, *, key: tuple[str, ...], where: str) -> LookupTable:
    """The rows of a pandas, Polars, Arrow or Spark frame, a dict, a list of dicts or a source.

    A dict maps a key to a dict of columns, or to a single value, which becomes the column `value`.
    A table without rows matches nothing, whatever the types of its columns.
    """
    try:
        table = _table(given, key, where)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise InvalidPipeline(
            f"{where}: {type(given).__name__} cannot be turned into Arrow columns: {error}"
        ) from error
    repeated = [name for name in table.column_names if table.column_names.count(name) > 1]
    if repeated:
        raise InvalidPipeline(f"{where}: two columns are called {repeated[0]!r}")
    table = table.replace_schema_metadata(None)
    if not table.num_rows:
        # Types of columns without cells are accidental: an empty frame of pandas has numbers.
        names = table.column_names or key
        table = pa.table({n: pa.nulls(0) if n in key else table.column(n) for n in names})
    for i, field in enumerate(table.schema):
        # Arrow has several types of text: convert them to one.
        if pa.types.is_dictionary(field.type) or pa.types.is_string_view(field.type):
            table = table.set_column(i, field.name, lookup_form(table.column(i)))
    return LookupTable(table.combine_chunks())


def _table(given: Any, key: tuple[str, ...], where: str) -> pa.Table:
    module = type(given).__module__.split(".")[0]
    if isinstance(given, Source):
        return _read(given, key, where)
    if isinstance(given, Mapping):
        return _of_dicts([_entry(k, v, key, where) for k, v in given.items()], key, where)
    if isinstance(given, list):
        return _of_dicts(given, key, where)
    if isinstance(given, pa.Table):
        return given
    if module == "pandas":
        named = any(name is not None for name in given.index.names)
        return pa.Table.from_pandas(given.reset_index() if named else given, preserve_index=False)
    if hasattr(given, "toArrow"):  # Spark
        if given.isStreaming:
            raise InvalidPipeline(
                f"{where}: a streaming frame is not a lookup table; read it and use join_asof"
            )
        return given.toArrow()
    if hasattr(given, "collect"):  # a lazy frame of Polars
        given = given.collect()
    if module == "polars" and hasattr(given, "to_arrow"):
        level = importlib.import_module("polars").CompatLevel.oldest()
        return given.to_arrow(compat_level=level)  # only Polars knows its newest types of text
    if hasattr(given, "__arrow_c_stream__") or isinstance(given, pa.RecordBatch):
        return pa.table(given)
    raise InvalidPipeline(
        f"{where}: a lookup table is a pandas, Polars, Arrow or Spark frame, a dict, a list of "
        f"dicts or a bounded source, not {type(given).__name__}"
    )


def _of_dicts(rows: Sequence[Any], key: tuple[str, ...], where: str) -> pa.Table:
    """One column for each name in any of the dicts; Arrow would use the names of the first dict."""
    odd = [row for row in rows if not isinstance(row, Mapping)]
    if odd:
        raise InvalidPipeline(f"{where}: rows of a lookup table are dicts, not {odd[0]!r:.80}")
    names = dict.fromkeys(name for row in rows for name in row)
    fields, arrays = [], []
    for name in names:
        try:
            if not isinstance(name, str):
                raise TypeError(f"a column's name is text, not {name!r:.80}")
            array = _column([row.get(name) for row in rows], looked_up=name in key)
        except (pa.ArrowException, OverflowError, TypeError, InvalidRecord) as error:
            raise InvalidPipeline(
                f"{where}: the lookup table is no table: column {name!r}: {error}"
            ) from None
        if isinstance(array, list):
            fields.append(pa.field(name, pa.binary(), metadata=PACKED))
            arrays.append(pa.array(array, pa.binary()))
        else:
            fields.append(pa.field(name, array.type))
            arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _column(cells: list[Any], *, looked_up: bool) -> pa.Array | list[bytes | None]:
    """Cells as a column; as packed values, if Arrow would change them."""
    kinds = set(map(type, cells)) - {type(None)}
    if looked_up:
        return pa.array(cells)  # mixed numbers are fine, because look-ups compare them by value
    if len(kinds) < 2 and not kinds & {list, tuple, dict, set, frozenset}:
        try:
            array = pa.array(cells)
            if kinds <= _PLAIN or python_list(array) == cells:
                return array
        except (pa.ArrowException, OverflowError, TypeError):
            pass  # for example an integer that is too wide
    return [None if cell is None else packed_exactly(cell) for cell in cells]


def _entry(key: Any, value: Any, names: tuple[str, ...], where: str) -> dict[str, Any]:
    parts = key if isinstance(key, tuple) else (key,)
    if len(parts) != len(names):
        raise InvalidPipeline(f"{where}: the key {key!r} has not the parts {', '.join(names)}")
    columns = dict(zip(names, parts, strict=True))
    if not isinstance(value, Mapping):
        return {**columns, "value": value}
    return {**columns, **{name: cell for name, cell in value.items() if name not in columns}}


def _read(source: Source, key: tuple[str, ...], where: str) -> pa.Table:
    """Reads all records of a bounded source now."""
    if not source.bounded:
        raise InvalidPipeline(
            f"{where}: {source.describe()} never ends, so it is no lookup table; use join_asof"
        )
    tables: list[pa.Table] = []
    values: list[Any] = []
    with tempfile.TemporaryDirectory(prefix="headrace-side-") as directory:
        source.prepare(Workspace(DiskStore(directory)))
        try:
            for split in sorted(source.splits()):
                at = source.first(split)
                while (found := source.plan(split, at, _READ_RECORDS)) is not None:
                    reading = source.read(split, found)
                    if reading.rejected:
                        bad = reading.rejected[0]
                        raise SourceError(
                            f"{where}: {split!r}, position {bad.position}: {bad.reason}: {bad.raw}"
                        )
                    if reading.columns is not None:
                        tables.append(pa.Table.from_batches([reading.columns]))
                    elif reading.values:
                        values += reading.values
                    if found.last:
                        break
                    at = found.end
        finally:
            source.close()
    if values:
        return _of_dicts(values, key, where)
    return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})


def _unpack(digest: str, data: bytes) -> LookupTable:
    side = LookupTable.__new__(LookupTable)
    side.digest = digest
    if digest not in _loaded:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            _loaded[digest] = reader.read_all()
    side.table = _loaded[digest]
    return side
