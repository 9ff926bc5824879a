"""What an import is given: a DataFrame, a table, or Parquet files, as one Arrow table."""

from __future__ import annotations

import glob
import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import HeadraceError, InvalidPipeline
from headrace.store.location import checkpoint_store


def table_of(given: Any, where: str) -> pa.Table:
    """A pandas, Polars, Arrow or Spark frame, a list of dicts, or paths of Parquet files."""
    try:
        return _table(given, where)
    except HeadraceError:
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError, OSError) as error:
        raise InvalidPipeline(f"{where}: the input cannot be read: {error}") from error


def _table(given: Any, where: str) -> pa.Table:
    module = type(given).__module__.split(".")[0]
    if isinstance(given, (str, os.PathLike)):
        return _parquet([os.fspath(given)], where)
    if isinstance(given, (list, tuple)) and given and isinstance(given[0], (str, os.PathLike)):
        return _parquet([os.fspath(each) for each in given], where)
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, list) and all(isinstance(row, Mapping) for row in given):
        names = dict.fromkeys(name for row in given for name in row)
        return pa.table({name: [row.get(name) for row in given] for name in names})
    if module == "pandas":
        named = any(name is not None for name in given.index.names)
        return pa.Table.from_pandas(given.reset_index() if named else given, preserve_index=False)
    if hasattr(given, "toArrow"):  # Spark
        if given.isStreaming:
            raise InvalidPipeline(f"{where}: a streaming frame cannot be imported")
        return given.toArrow()
    if hasattr(given, "collect"):  # a lazy frame of Polars
        given = given.collect()
    if module == "polars" and hasattr(given, "to_arrow"):
        return given.to_arrow(compat_level=importlib.import_module("polars").CompatLevel.oldest())
    if hasattr(given, "__arrow_c_stream__") or isinstance(given, pa.RecordBatch):
        return pa.table(given)
    raise InvalidPipeline(
        f"{where}: the input is a pandas, Polars, Arrow or Spark frame, a list of dicts, or the "
        f"path of Parquet files, not {type(given).__name__}"
    )


def _parquet(places: Sequence[str], where: str) -> pa.Table:
    tables: list[tuple[str, pa.Table]] = []
    for place in places:
        found = _on_store(place) if "://" in place else _on_disk(place)
        if not found:
            raise InvalidPipeline(f"{where}: there are no Parquet files at {place}")
        tables += found
    first = tables[0][1].schema
    try:
        return pa.concat_tables([table for _, table in tables], promote_options="default")
    except pa.ArrowException as error:
        odd = next((name for name, table in tables if table.schema != first), tables[0][0])
        raise InvalidPipeline(
            f"{where}: the columns of {odd} have other types than those of {tables[0][0]}: {error}"
        ) from None


def _on_disk(place: str) -> list[tuple[str, pa.Table]]:
    if os.path.isdir(place):
        place = os.path.join(glob.escape(place), "*.parquet")
    paths = [place] if os.path.isfile(place) else sorted(glob.glob(place))
    shown = (path for path in paths if not os.path.basename(path).startswith(("_", ".")))
    return [(path, pq.read_table(path, partitioning=None)) for path in shown]


def _on_store(place: str) -> list[tuple[str, pa.Table]]:
    if place.endswith(".parquet"):
        directory, _, name = place.rpartition("/")
        store, names = checkpoint_store(directory), [name]
    else:
        store = checkpoint_store(place)
        names = sorted(n for n in store.list("") if n.endswith(".parquet") and n[0] not in "_.")
    return [(store.where(name), pq.read_table(pa.BufferReader(store.read(name)))) for name in names]
