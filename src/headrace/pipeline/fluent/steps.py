"""Checks the arguments of steps without a key, and creates their computations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import InvalidPipeline
from headrace.model.computation import Computation
from headrace.model.functions import checked_function
from headrace.model.key_spec import KeyGiven, KeyParts, KeySpec
from headrace.model.values.column_names import RECORD_TIME, check_column, check_expression
from headrace.operators.steps.stateless import (
    FilterRecords,
    FilterTable,
    Select,
    SplitRecords,
    SplitTable,
)
from headrace.pipeline.fluent.catalog import Catalog
from headrace.pipeline.graph.graph import To


def filter_step(catalog: Catalog, stream: str, condition: Any) -> Computation:
    """Keeps the values for which a function or an expression is true."""
    where = f"{stream}.filter"
    if isinstance(condition, pc.Expression):
        check_expression(condition, fields_of(catalog, stream), where=where)
        return FilterTable(condition)
    if isinstance(condition, str):
        raise InvalidPipeline(
            f"{where} takes a function or an Arrow expression, not {condition!r:.80}"
            ': lambda v: v["n"] > 1, or pc.field("n") > 1; text goes into '
            'sql("SELECT * FROM stream WHERE n > 1")'
        )
    return FilterRecords(checked_function(condition, where, "value"))


def select_step(catalog: Catalog, stream: str, chosen: Mapping[str, Any]) -> Computation:
    """Selects these columns and expressions, under these names."""
    where = f"{stream}.select"
    if not chosen:
        raise InvalidPipeline(f"{where}: name at least one column")
    for name, given in chosen.items():
        if not isinstance(given, str | pc.Expression):
            raise InvalidPipeline(
                f"{where}: {name} is a column's name or an Arrow expression, not {given!r:.80}"
            )
        if isinstance(given, pc.Expression):
            check_expression(given, fields_of(catalog, stream), where=where)
        elif given != RECORD_TIME:
            check_column(given, catalog.columns_of(stream), where=where)
    return Select(dict(chosen))


def split_step(catalog: Catalog, stream: str, ports: Mapping[str, Any]) -> Computation:
    """Sends each value to the first port whose condition is true."""
    where = f"{stream}.split"
    given = [condition for condition in ports.values() if condition is not None]
    in_columns = bool(given) and all(isinstance(one, pc.Expression) for one in given)
    for port, condition in ports.items():
        if in_columns and condition is not None:
            check_expression(condition, fields_of(catalog, stream), where=where)
        elif isinstance(condition, pc.Expression):
            raise InvalidPipeline(
                f"{where}: {port} is an Arrow expression: then all others must be too"
            )
        elif condition is not None:
            checked_function(condition, f"{where}: {port}=", "value")
    return SplitTable(dict(ports)) if in_columns else SplitRecords(dict(ports))


def split_options(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Separates options, such as `errors=to(...)`, from named columns or streams."""
    options = {name: value for name, value in given.items() if isinstance(value, To)}
    return options, {name: value for name, value in given.items() if name not in options}


def key_of(
    catalog: Catalog,
    stream: str,
    columns: tuple[Any, ...],
    named: Mapping[str, Callable[[Any], Any]],
) -> tuple[KeyGiven, tuple[str, ...]]:
    """The key that `key_by` was given, and the names of its parts in rows."""
    where = f"{stream}.key_by"
    if named:
        if columns:
            raise InvalidPipeline(f"{where} takes columns, or name=function, not both")
        functions = [checked_function(function, where, "value") for function in named.values()]
        key: KeyGiven = functions[0] if len(functions) == 1 else KeyParts(tuple(functions))
        return key, tuple(named)
    if len(columns) == 1 and isinstance(columns[0], tuple | list):
        columns = tuple(columns[0])
    if len(columns) == 1 and callable(columns[0]):
        return KeySpec(columns[0], where=where).function, ("key",)
    if not all(isinstance(column, str) for column in columns):
        raise InvalidPipeline(
            f"{where} takes names of columns, or one function, not {columns!r:.80}"
        )
    if "" in columns or len(set(columns)) != len(columns):
        raise InvalidPipeline(f"{where}: each column has a name, and once: {columns!r:.80}")
    for column in columns:
        check_column(column, catalog.columns_of(stream), where=where)
    return columns[0] if len(columns) == 1 else tuple(columns), tuple(columns)


def fields_of(catalog: Catalog, stream: str) -> pa.Schema | tuple[str, ...] | None:
    """The columns of a stream, if they are known, with their types, if a schema gives them."""
    schema = catalog.schema_of(stream)
    return catalog.columns_of(stream) if schema is None else schema.arrow
