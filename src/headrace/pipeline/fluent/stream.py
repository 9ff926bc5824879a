"""`Stream`: the fluent interface. It builds the same graph as `p.compute`; the two mix freely.

A step is a computation called `<stream>.<step>`, and so is the stream it makes: names
never come from a counter, as state belongs to names. A second step of the same name
on one stream needs `.named(...)` right behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import InvalidPipeline
from headrace.model.computation import Computation
from headrace.model.functions import checked_function
from headrace.model.key_spec import KeyGiven, KeyParts, KeySpec
from headrace.model.sink import Sink
from headrace.model.values.column_names import RECORD_TIME, check_column, check_expression
from headrace.model.values.time import Duration, duration
from headrace.operators.steps.dedup import DedupWithin
from headrace.operators.steps.map_table import MapTable
from headrace.operators.steps.sql import Sql
from headrace.operators.steps.sql_query import query_columns
from headrace.operators.steps.stateless import (
    FilterRecords,
    FilterTable,
    FlatMapRecords,
    MapRecords,
    PassOn,
    Select,
    SplitRecords,
    SplitTable,
)
from headrace.pipeline.fluent.hints import NAMES_ELSEWHERE
from headrace.pipeline.fluent.lookups import On, lookup
from headrace.pipeline.graph.graph import To

if TYPE_CHECKING:
    from headrace.pipeline.fluent.builder import PipelineBuilder
    from headrace.pipeline.fluent.keyed_stream import KeyedStream

KEYED_STEPS = ("window", "reduce", "count", "aggregate", "top", "join", "join_asof")
"""What only a keyed stream has."""

SchemaGiven: TypeAlias = type[Any] | pa.Schema | None
"""The columns of a stream: a dataclass, msgspec Struct, TypedDict or Arrow schema."""

V = TypeVar("V")
W = TypeVar("W")


class Stream(Generic[V]):
    """A named channel of records with values of type V."""

    key: KeyGiven = None
    """How later steps take the key; it stays until the next `key_by`."""

    def __init__(
        self, builder: PipelineBuilder, name: str, *, made_by: tuple[str, ...] = ()
    ) -> None:
        self._builder = builder
        self.name = name
        self._made_by = made_by

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in KEYED_STEPS:
                raise InvalidPipeline(
                    f"{self.name}.{name} needs a key: write {self.name}.key_by(...).{name}(...)"
                )
            what = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in NAMES_ELSEWHERE:
                what = f"a stream has no {name!r}; write {NAMES_ELSEWHERE[name]}"
            raise AttributeError(what)

    # Class computations and sinks -----------------------------------------

    def compute(
        self,
        computation: Computation | type[Computation],
        *,
        key: KeyGiven | EllipsisType = ...,
        **options: Any,
    ) -> Stream[Any]:
        """A computation whose only input is this stream; `key` is the stream's unless given."""
        given = self.key if isinstance(key, EllipsisType) else key
        return self._builder.compute(computation, inputs={self.name: given}, **options)

    def write(self, sink: Sink, *, name: str | None = None) -> Stream[V]:
        """Sends this stream to a sink as well."""
        self._builder._write(self.name, sink, name)
        return self

    # Steps without a key --------------------------------------------------

    def map(
        self, function: Callable[[V], W], *, schema: SchemaGiven = None, **options: Any
    ) -> Stream[W]:
        """Every value becomes `function(value)`.

        `schema`: the columns that these have, as in `p.read`; steps behind it then know them.
        """
        step = MapRecords(
            checked_function(function, f"{self.name}.map", "value", yields="use flat_map")
        )
        return self._step("map", step, schema=schema, **options)

    def flat_map(
        self, function: Callable[[V], Iterable[W]], *, schema: SchemaGiven = None, **options: Any
    ) -> Stream[W]:
        """Every value becomes the values that `function(value)` gives. `schema` as in `map`."""
        step = FlatMapRecords(
            checked_function(function, f"{self.name}.flat_map", "value", yields="")
        )
        return self._step("flat_map", step, schema=schema, **options)

    def filter(self, condition: Callable[[V], Any] | pc.Expression, **options: Any) -> Stream[V]:
        """Keeps the values for which a function, or an Arrow expression over columns, holds.

        An expression (`pc.field("price") > 10`) costs no Python per record, and columns stay
        columns.
        """
        if isinstance(condition, pc.Expression):
            check_expression(condition, self._fields(), where=f"{self.name}.filter")
            return self._alike(self._step("filter", FilterTable(condition), **options))
        if isinstance(condition, str):
            raise InvalidPipeline(
                f"{self.name}.filter takes a function or an Arrow expression, not {condition!r:.80}"
                ': lambda v: v["n"] > 1, or pc.field("n") > 1; text goes into '
                'sql("SELECT * FROM stream WHERE n > 1")'
            )
        step = FilterRecords(checked_function(condition, f"{self.name}.filter", "value"))
        return self._alike(self._step("filter", step, **options))

    def map_table(
        self,
        function: Callable[[pa.Table], pa.Table],
        *,
        schema: SchemaGiven = None,
        **options: Any,
    ) -> Stream[Any]:
        """Every Arrow table of records becomes the table that `function` gives.

        It may give a pandas or Polars DataFrame, too.

        How records are cut into tables depends on the epoch, so treat rows one by one. Records
        without a schema come in runs that have the same columns of the same kinds: a null where
        the record before has a number begins a new table. The table has a column `timestamp`;
        keep it where you drop or add rows. `schema` as in `map`.
        """
        step = MapTable(checked_function(function, f"{self.name}.map_table", "table"))
        return self._step("map_table", step, schema=schema, **options)

    def select(self, *names: str, **columns: str | pc.Expression | To) -> Stream[Any]:
        """These columns only, and new ones: `select("user", cents=pc.field("price") * 100)`.

        Columns that are only named are handed through, whatever they hold; None where a record
        has none. `errors=to("dead")` is where records go that an expression cannot take.
        """
        options: Any = {name: given for name, given in columns.items() if isinstance(given, To)}
        chosen: dict[str, Any] = {name: name for name in names} | columns
        chosen = {name: given for name, given in chosen.items() if name not in options}
        if not chosen:
            raise InvalidPipeline(f"{self.name}.select: name at least one column")
        for name, given in chosen.items():
            if not isinstance(given, str | pc.Expression):
                raise InvalidPipeline(
                    f"{self.name}.select: {name} is a column's name or an Arrow expression, "
                    f"not {given!r:.80}"
                )
            if isinstance(given, pc.Expression):
                check_expression(given, self._fields(), where=f"{self.name}.select")
            elif given != RECORD_TIME:
                check_column(given, self._known(), where=f"{self.name}.select")
        made = self._step("select", Select(chosen), **options)
        self._builder._known_columns[made.name] = tuple(chosen)
        return made

    def sql(self, query: str, **options: Any) -> Stream[Any]:
        """One SELECT over each record: `sql("SELECT user, price * 100 AS cents FROM stream")`,
        or FROM the stream's own name.

        It runs in DuckDB (the extra `headrace[sql]`), row by row: aggregates, ORDER BY, joins
        and functions that a replay would not repeat are refused.
        """
        step = Sql(query, self.name)
        columns = query_columns(query, self._known(), f"{self.name}.sql")
        made = self._step("sql", step, **options)
        if columns is not None:
            self._builder._known_columns[made.name] = columns
        return made

    def union(self, *others: Stream[Any]) -> Stream[Any]:
        """The records of this stream and of others, as one stream."""
        for other in others:
            self._check_same_pipeline(other, "union")
        streams = [self.name, *(other.name for other in others)]
        if len(set(streams)) != len(streams):
            raise InvalidPipeline(f"{self.name}.union: a stream is named twice")
        made = self._step("union", PassOn(), inputs=dict.fromkeys(streams))
        schemas = [self._builder._schemas.get(stream) for stream in streams]
        if all(s is not None and schemas[0] and s.given == schemas[0].given for s in schemas):
            return self._alike(made)
        self._builder._poured(streams, made.name)
        return made

    def split(
        self, *unnamed: Any, **conditions: Callable[[V], Any] | pc.Expression | To | None
    ) -> dict[str, Stream[V]]:
        """Sends each value to the first stream whose function, or Arrow expression, holds.

        `parts = lines.split(errors=is_error, rest=None)` gives the streams `lines.errors` and
        `lines.rest`; None takes what is left. Values that none takes are dropped.
        `errors=to("dead")` is where values go that a condition cannot take.
        """
        where = f"{self.name}.split"
        options = {name: given for name, given in conditions.items() if isinstance(given, To)}
        ports: dict[str, Any] = {n: given for n, given in conditions.items() if n not in options}
        if unnamed or not ports:
            raise InvalidPipeline(
                f"{where}: name at least one stream, and each: split(errors=is_error, rest=None)"
            )
        given = [condition for condition in ports.values() if condition is not None]
        in_columns = bool(given) and all(isinstance(one, pc.Expression) for one in given)
        for port, condition in ports.items():
            if in_columns and condition is not None:
                check_expression(condition, self._fields(), where=where)
            elif isinstance(condition, pc.Expression):
                raise InvalidPipeline(
                    f"{where}: {port} is an Arrow expression: then all others must be too"
                )
            elif condition is not None:
                checked_function(condition, f"{where}: {port}=", "value")
        step = SplitTable(ports) if in_columns else SplitRecords(ports)
        outputs = {port: f"{self.name}.{port}" for port in ports}
        name = f"{self.name}.split"
        if name in self._builder._nodes:  # its streams are named by the parts, so why not it too
            name = f"{name} {' '.join(ports)}"
        self._builder._add(name, step, {self.name: None}, outputs, **options)
        made = {port: Stream[V](self._builder, stream) for port, stream in outputs.items()}
        for stream in made.values():
            self._alike(stream)
        return {port: self._same_key(stream) for port, stream in made.items()}

    def named(self, name: str) -> Stream[V]:
        """Gives the step that made this stream, and the stream, a name of its own."""
        if not self._made_by:
            raise InvalidPipeline(
                f"stream {self.name!r} was not made by a step of the fluent interface, "
                "so named() has nothing to name"
            )
        old = self.name
        self._made_by = self._builder._rename(self._made_by, old, name)
        self.name = name
        return self

    # Keys -----------------------------------------------------------------

    def key_by(self, *columns: Any, **named: Callable[[V], Any]) -> KeyedStream[V]:
        """The key of later steps: columns, or a function of the value.

        `key_by("user")`, `key_by("user", "page")`, `key_by(lambda v: v["user"])`,
        `key_by(user=lambda v: v.split()[0])` (its rows then have a column `user`; several names
        make a key of several parts), and `key_by()` for one key for all. It moves nothing by
        itself.
        """
        from headrace.pipeline.fluent.keyed_stream import KeyedStream

        where = f"{self.name}.key_by"
        if named:
            if columns:
                raise InvalidPipeline(f"{where} takes columns, or name=function, not both")
            functions = [checked_function(function, where, "value") for function in named.values()]
            key: KeyGiven = functions[0] if len(functions) == 1 else KeyParts(tuple(functions))
            return KeyedStream(self._builder, self.name, key, tuple(named))
        if len(columns) == 1 and isinstance(columns[0], tuple | list):
            columns = tuple(columns[0])
        if len(columns) == 1 and callable(columns[0]):
            spec = KeySpec(columns[0], where=where)
            return KeyedStream(self._builder, self.name, spec.function, ("key",))
        if not all(isinstance(column, str) for column in columns):
            raise InvalidPipeline(
                f"{where} takes names of columns, or one function, not {columns!r:.80}"
            )
        if "" in columns or len(set(columns)) != len(columns):
            raise InvalidPipeline(f"{where}: each column has a name, and once: {columns!r:.80}")
        for column in columns:
            check_column(column, self._known(), where=where)
        given: KeyGiven = columns[0] if len(columns) == 1 else tuple(columns)
        return KeyedStream(self._builder, self.name, given, tuple(columns))

    def dedup(self, id: KeyGiven | None = None, *, within: Duration, **options: Any) -> Stream[V]:
        """The first record of each id; more of them within the time are dropped and counted.

        `id` is a column, a tuple of columns or a function; the stream's key unless given.
        """
        given = self.key if id is None else id
        if given is None:
            raise InvalidPipeline(f"{self.name}.dedup: say by which id= (a column or a function)")
        within_us = duration(within, what=f"{self.name}.dedup: within=")
        inputs = {self.name: given}
        return self._alike(self._step("dedup", DedupWithin(within_us), inputs=inputs, **options))

    # Side inputs ----------------------------------------------------------

    def lookup(
        self, table: Any, *, on: On | None = None, how: str = "left", **options: Any
    ) -> Stream[Any]:
        """Adds the columns of the matching rows of a bounded table.

        `table` is a pandas, Polars, Arrow or Spark DataFrame, a dict (key -> columns), a list of
        dicts or a bounded source. It is read here and now, and travels with the pipeline.
        `on` is a column of both, a tuple of such, or {stream column: table column}; the stream's
        key unless given. `how="left"` keeps records without a match, "inner" drops them.
        """
        key = self.key if on is None else on
        if key is None or key == () or (callable(key) and not isinstance(key, Mapping)):
            raise InvalidPipeline(f"{self.name}.lookup: say on= which column")
        name, columns = lookup(
            self._builder, self.name, table, on=key, how=how, columns=self._known(), **options
        )
        if columns is not None:
            self._builder._known_columns[name] = columns
        return self._same_key(Stream(self._builder, name, made_by=(name,)))

    # How steps are made ---------------------------------------------------

    def _check_same_pipeline(self, other: Any, step: str) -> None:
        where = f"{self.name}.{step}"
        if not isinstance(other, Stream):
            raise InvalidPipeline(f"{where} takes streams, not {other!r:.80}")
        if other._builder is not self._builder:
            name = other._builder.name
            raise InvalidPipeline(f"{where}: {other.name!r} belongs to another pipeline, {name!r}")

    def _known(self) -> tuple[str, ...] | None:
        """The columns, where they are known while building."""
        return self._builder._columns_of(self.name)

    def _fields(self) -> pa.Schema | tuple[str, ...] | None:
        """The same with their types, where a schema gives them."""
        schema = self._builder._schemas.get(self.name)
        return self._known() if schema is None else schema.arrow

    def _alike(self, made: Any) -> Any:
        """A stream with the same values as this one, fewer perhaps."""
        self._builder._alike(self.name, made.name)
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
        made = self._builder._add(name, computation, inputs or {self.name: None}, name, **options)
        self._builder._declare(made, schema)
        return self._same_key(Stream(self._builder, made, made_by=(made,)))

    def _same_key(self, stream: Stream[Any]) -> Any:
        """A stream that goes on under this one's key."""
        return stream
