"""`BaseStream`: the steps that every stream has, with a key or without.

It has two type parameters: the type of the values, and the stream type (`Stream[Any]`) that is
returned by steps whose values have another type. So it need not know `Stream`, its subclass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Self, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import InvalidPipeline
from headrace.model.computation import Computation
from headrace.model.functions import checked_function
from headrace.model.key_spec import KeyGiven
from headrace.model.sink import Sink
from headrace.model.values.time import Duration, duration
from headrace.operators.steps.dedup import DedupWithin
from headrace.operators.steps.map_table import MapTable
from headrace.operators.steps.sql import Sql
from headrace.operators.steps.sql_query import query_columns
from headrace.operators.steps.stateless import PassOn
from headrace.pipeline.fluent.catalog import Catalog
from headrace.pipeline.fluent.lookups import On, lookup
from headrace.pipeline.fluent.steps import filter_step, select_step, split_options, split_step
from headrace.pipeline.graph.graph import To

SchemaGiven: TypeAlias = type[Any] | pa.Schema | None
"""The columns of a stream: a dataclass, msgspec Struct, TypedDict or Arrow schema."""

V = TypeVar("V")
A = TypeVar("A")


class BaseStream(Generic[V, A]):
    """A named channel of records with values of type V."""

    key: KeyGiven = None
    """How later steps extract the key; it applies until the next `key_by`."""

    def __init__(self, catalog: Catalog, name: str, *, made_by: tuple[str, ...] = ()) -> None:
        self._catalog = catalog
        self.name = name
        self._made_by = made_by

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def write(self, sink: Sink, *, name: str | None = None) -> Self:
        """Sends this stream to a sink. A stream may have several sinks."""
        self._catalog.add_outlet(self.name, sink, name)
        return self

    def filter(self, condition: Callable[[V], Any] | pc.Expression, **options: Any) -> Self:
        """Keeps the values for which a function, or an Arrow expression over columns, is true.

        An expression (`pc.field("price") > 10`) runs no Python code per record, and columns stay
        columns.
        """
        step = filter_step(self._catalog, self.name, condition)
        return self._alike(self._step("filter", step, **options))

    def map_table(
        self,
        function: Callable[[pa.Table], pa.Table],
        *,
        schema: SchemaGiven = None,
        **options: Any,
    ) -> A:
        """Replaces every Arrow table of records with the table that `function` returns.

        It may also return a pandas or Polars DataFrame.

        How records are cut into tables depends on the epoch, so treat each row separately. Records
        without a schema are grouped into runs with the same columns of the same kinds: a null
        after a number in the same column begins a new table. The table has a column `timestamp`;
        keep it if you drop or add rows. `schema` as in `map`.
        """
        step = MapTable(checked_function(function, f"{self.name}.map_table", "table"))
        return self._step("map_table", step, schema=schema, **options)

    def select(self, *names: str, **columns: str | pc.Expression | To) -> A:
        """Only these columns, and new ones: `select("user", cents=pc.field("price") * 100)`.

        Columns that are only named pass unchanged, of any type; None if a record does not have the
        column. `errors=to("dead")`: where records go for which an expression fails.
        """
        options, chosen = split_options({**{name: name for name in names}, **columns})
        step = select_step(self._catalog, self.name, chosen)
        made = self._step("select", step, **options)
        self._catalog.know_columns(made.name, list(chosen))
        return made

    def sql(self, query: str, **options: Any) -> A:
        """One SELECT over each record: `sql("SELECT user, price * 100 AS cents FROM stream")`,
        or FROM the stream's own name.

        It runs in DuckDB (the extra `headrace[sql]`), row by row. Aggregates, ORDER BY, joins,
        and functions whose results differ in a replay are refused.
        """
        step = Sql(query, self.name)
        columns = query_columns(query, self._catalog.columns_of(self.name), f"{self.name}.sql")
        made = self._step("sql", step, **options)
        if columns is not None:
            self._catalog.know_columns(made.name, columns)
        return made

    def union(self, *others: BaseStream[Any, Any]) -> A:
        """The records of this stream and of others, as one stream."""
        where = f"{self.name}.union"
        given = [check_stream(other, f"{where} takes streams") for other in others]
        streams = [self.name, *(other.name_in(self._catalog, where) for other in given)]
        if len(set(streams)) != len(streams):
            raise InvalidPipeline(f"{self.name}.union: a stream is named twice")
        made = self._step("union", PassOn(), inputs=dict.fromkeys(streams))
        schemas = [self._catalog.schema_of(stream) for stream in streams]
        if all(s is not None and schemas[0] and s.given == schemas[0].given for s in schemas):
            return self._alike(made)
        self._catalog.pour(streams, made.name)
        return made

    def split(
        self, *unnamed: Any, **conditions: Callable[[V], Any] | pc.Expression | To | None
    ) -> dict[str, Self]:
        """Sends each value to the first stream whose function, or Arrow expression, is true.

        `parts = lines.split(errors=is_error, rest=None)` gives the streams `lines.errors` and
        `lines.rest`; None takes all other values. Values that no stream takes are dropped.
        `errors=to("dead")`: where values go for which a condition fails.
        """
        options, ports = split_options(conditions)
        if unnamed or not ports:
            raise InvalidPipeline(
                f"{self.name}.split: name at least one stream, and each: "
                "split(errors=is_error, rest=None)"
            )
        step = split_step(self._catalog, self.name, ports)
        outputs = {port: f"{self.name}.{port}" for port in ports}
        name = f"{self.name}.split"
        if name in self._catalog.nodes:  # name the step by its ports, as its streams are
            name = f"{name} {' '.join(ports)}"
        self._catalog.add_step(name, step, {self.name: None}, outputs, **options)
        return {port: self._alike(self._next(stream)) for port, stream in outputs.items()}

    def named(self, name: str) -> Self:
        """Gives a new name to this stream and to the step that produces it."""
        if not self._made_by:
            raise InvalidPipeline(
                f"stream {self.name!r} was not made by a step of the fluent interface, "
                "so named() has nothing to name"
            )
        old = self.name
        self._made_by = self._catalog.rename(self._made_by, old, name)
        self.name = name
        return self

    def dedup(self, id: KeyGiven | None = None, *, within: Duration, **options: Any) -> Self:
        """The first record of each id. Further records of the id within the time are dropped and
        counted.

        `id` is a column, a tuple of columns or a function; by default the stream's key.
        """
        given = self.key if id is None else id
        if given is None:
            raise InvalidPipeline(f"{self.name}.dedup: say by which id= (a column or a function)")
        within_us = duration(within, what=f"{self.name}.dedup: within=")
        inputs = {self.name: given}
        return self._alike(self._step("dedup", DedupWithin(within_us), inputs=inputs, **options))

    def lookup(
        self,
        table: Any,
        *,
        on: On | None = None,
        how: str = "left",
        refresh: Duration | None = None,
        **options: Any,
    ) -> A:
        """Adds the columns of the matching rows of a bounded table.

        `table` is a pandas, Polars, Arrow or Spark DataFrame, a dict (key -> columns), a list of
        dicts or a bounded source. It is read now, and becomes part of the pipeline.
        `on` is a column of both, a tuple of such columns, or {stream column: table column}; by
        default the stream's key. `how="left"` keeps records without a match, "inner" drops them.
        `refresh="10m"` reads the table again after that time, for the next epoch: then it is a
        bounded source, or a function that returns one of the others.
        """
        key = self.key if on is None else on
        if key is None or key == () or (callable(key) and not isinstance(key, Mapping)):
            raise InvalidPipeline(f"{self.name}.lookup: say on= which column")
        known = self._catalog.columns_of(self.name)
        name, columns = lookup(
            self._catalog,
            self.name,
            table,
            on=key,
            how=how,
            columns=known,
            refresh=refresh,
            **options,
        )
        if columns is not None:
            self._catalog.know_columns(name, columns)
        return self._next(name, name)

    # How steps are made ---------------------------------------------------

    def name_in(self, catalog: Catalog, where: str) -> str:
        """The name; raises InvalidPipeline if it is a stream of another pipeline."""
        if self._catalog is not catalog:
            raise InvalidPipeline(
                f"{where}: {self.name!r} belongs to another pipeline, {self._catalog.pipeline!r}"
            )
        return self.name

    def _alike(self, made: Any) -> Any:
        """A stream with the same values as this one, or some of them."""
        self._catalog.alike(self.name, made.name)
        return made

    def _step(
        self,
        step: str,
        computation: Computation,
        *,
        inputs: Mapping[str, KeyGiven] | None = None,
        schema: SchemaGiven = None,
        **options: Any,
    ) -> Any:
        name = f"{self.name}.{step}"
        made = self._catalog.add_step(
            name, computation, inputs or {self.name: None}, name, **options
        )
        self._catalog.declare(made, schema)
        return self._next(made, made)

    def _next(self, name: str, *made_by: str) -> Any:
        """A following stream with the key of this one."""
        return type(self)(self._catalog, name, made_by=made_by)


def check_stream(given: Any, what: str) -> BaseStream[Any, Any]:
    """Checks that an argument is a stream. `what` begins the message of the error."""
    if not isinstance(given, BaseStream):
        raise InvalidPipeline(f"{what}, not {given!r:.80}")
    return given
