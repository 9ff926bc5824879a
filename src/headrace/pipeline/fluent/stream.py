"""`Stream`: the fluent interface. It builds the same graph as `p.compute`; the two mix freely.

A step is a computation called `<stream>.<step>`; the stream that it produces has the same name.
Names never come from a counter, because state belongs to names. A second step of the same name on
one stream needs `.named(...)` directly after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.errors import InvalidPipeline
from headrace.model.computation import Computation
from headrace.model.functions import checked_function
from headrace.model.key_spec import KeyGiven
from headrace.model.values.time import Duration
from headrace.operators.aggregates.aggregate import Aggregate
from headrace.operators.joins.bounds import Interval
from headrace.operators.joins.combine import Select as JoinSelect
from headrace.operators.joins.combine import Side
from headrace.operators.steps.reduce import reducer
from headrace.operators.steps.stateless import FlatMapRecords, MapRecords
from headrace.operators.windows.whole import whole
from headrace.operators.windows.window import Every, Window
from headrace.pipeline.fluent.base_stream import BaseStream, SchemaGiven, V, check_stream
from headrace.pipeline.fluent.catalog import Catalog
from headrace.pipeline.fluent.hints import NAMES_ELSEWHERE
from headrace.pipeline.fluent.joins import Made, join, join_asof
from headrace.pipeline.fluent.keyed_source import KeyedSource
from headrace.pipeline.fluent.steps import key_of
from headrace.pipeline.fluent.top import top_by_id
from headrace.pipeline.fluent.windowed_stream import StepOption, WindowedStream
from headrace.pipeline.graph.graph import Node, To

KEYED_STEPS = ("window", "reduce", "count", "aggregate", "top", "join", "join_asof")
"""Steps that only a keyed stream has."""

W = TypeVar("W")
S = TypeVar("S")


class Stream(BaseStream[V, "Stream[Any]"]):
    """A named channel of records with values of type V."""

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

    def compute(
        self,
        computation: Computation | type[Computation],
        *,
        key: KeyGiven | EllipsisType = ...,
        **options: Any,
    ) -> Stream[Any]:
        """A computation whose only input is this stream. `key` is by default the stream's key."""
        given = self.key if isinstance(key, EllipsisType) else key
        node = self._catalog.add_node(computation, inputs={self.name: given}, **options)
        return stream_of(self._catalog, node)

    def map(
        self, function: Callable[[V], W], *, schema: SchemaGiven = None, **options: Any
    ) -> Stream[W]:
        """Every value becomes `function(value)`.

        `schema`: the columns of the new values, as in `p.read`. Later steps then know them.
        """
        step = MapRecords(
            checked_function(function, f"{self.name}.map", "value", yields="use flat_map")
        )
        return self._step("map", step, schema=schema, **options)

    def flat_map(
        self, function: Callable[[V], Iterable[W]], *, schema: SchemaGiven = None, **options: Any
    ) -> Stream[W]:
        """Every value becomes the values that `function(value)` returns. `schema` as in `map`."""
        step = FlatMapRecords(
            checked_function(function, f"{self.name}.flat_map", "value", yields="")
        )
        return self._step("flat_map", step, schema=schema, **options)

    def key_by(self, *columns: Any, **named: Callable[[V], Any]) -> KeyedStream[V]:
        """The key of later steps: columns, or a function of the value.

        `key_by("user")`, `key_by("user", "page")`, `key_by(lambda v: v["user"])`,
        `key_by(user=lambda v: v.split()[0])` (rows then have a column `user`; several names
        make a key of several parts), and `key_by()` for one key for all. `key_by` by itself moves
        no records.
        """
        key, parts = key_of(self._catalog, self.name, columns, named)
        return KeyedStream(self._catalog, self.name, key, parts)

    def _next(self, name: str, *made_by: str) -> Any:
        return Stream(self._catalog, name, made_by=made_by)


class KeyedStream(Stream[V]):
    """A stream, and how later steps extract the key from its values."""

    def __init__(
        self,
        catalog: Catalog,
        name: str,
        key: KeyGiven,
        columns: tuple[str, ...],
        *,
        made_by: tuple[str, ...] = (),
    ) -> None:
        super().__init__(catalog, name, made_by=made_by)
        self.key = key
        self.key_columns = columns
        """The names of the key's parts in rows that steps produce."""

    def reduce(
        self,
        function: Callable[[V, S], Any],
        initial: S | EllipsisType = ...,
        *,
        outputs: bool = False,
        ordered: bool = False,
        ttl: Duration | None = None,
        **options: Any,
    ) -> Stream[Any]:
        """Folds a key's values into its state: `reduce(lambda value, total: total + value, 0)`.

        The function gets the value, then the state (at first a copy of `initial`, which may be
        None), and returns the new state. The new state is also sent as a row; it does not contain
        the key, so add it if you need it: `{"user": value["user"], ...}`. With `outputs=True` the
        function returns (state, output), and the output is sent unless it is None. A new state of
        None forgets the key; so does the time `ttl` without a record. `ordered=True` folds in time
        order.
        The state is numbers, text, lists or dicts; or a tuple, set, dataclass or Struct if
        `initial` is one.
        """
        where = f"{self.name}.reduce"
        if initial is ...:
            raise InvalidPipeline(
                f"{where}: say what a key's state is before its first value: "
                "reduce(lambda value, total: total + value, 0); reduce(f, None) for None"
            )
        checked_function(function, where, "value", "state")
        step = reducer(function, initial, outputs, ordered, ttl, where=where)
        return self._step("reduce", step, inputs={self.name: self.key}, **options)

    # Windows and aggregates -----------------------------------------------

    def window(
        self,
        window: Window,
        *,
        by: str = "event",
        grace: Duration = "0s",
        late: str | To = "drop",
        emit: str | Every = "final",
        **options: Any,
    ) -> WindowedStream[KeyedStream[Any]]:
        """Cuts each key's records into windows, for `count`, `aggregate` and `top`.

        - `by`: "event" time (default), or the wall time of the epoch that reads ("ingestion")
          or processes ("processing") a record; a replay repeats both. After a step that delays
          records, such as a window, ingestion time is not available: use processing time.
        - `grace`: a window stays open for records that are late by at most this time.
        - `late`: what happens to records whose windows have closed: "drop" (they are counted),
          or `to(stream)`.
        - `emit`: "final" (once, when it closes at end + grace), "on_time" (at its end, then
          again with every epoch that corrects it), "changes" (with every epoch that changes
          it), `every("5s")` or `every(100)` records; the last three also when it closes.
        - All other options are those of `p.compute`, such as `errors=to("dead")` for records
          without a usable key.
        """
        return WindowedStream(
            self._source(), self._rows_of, window, by=by, grace=grace, late=late, emit=emit,
            **options,
        )  # fmt: skip

    def count(self, name: str = "count", **options: Any) -> KeyedStream[Any]:
        """The number of records of each key so far; sent with every epoch that changes it."""
        return self._all_time().count(name, **options)

    def aggregate(self, *unnamed: Any, **aggregates: Aggregate | StepOption) -> KeyedStream[Any]:
        """Aggregates of all of a key's records; sent with every epoch that changes them.

        Options of `p.compute` may be added: `aggregate(n=agg.count(), errors=to("dead"))`.
        """
        return self._all_time().aggregate(*unnamed, **aggregates)

    def top(
        self, n: int, *, by: str, id: str | tuple[str, ...] = (), **options: Any
    ) -> KeyedStream[Any]:
        """The n rows with the largest `by` among rows that replace each other by `id`.

        For streams of changes, such as `count()`: the latest row of each id (a column, or several)
        counts. A row without a value in `by` removes its id from the list. The whole list is sent,
        with `rank` from 1 on, in every epoch that changes it. If the list becomes shorter, rows
        with only key and rank are sent for the removed ranks. The list is computed in two phases,
        so no slot sees all rows. (For closed windows: `window(...).top(n, by=)`.)
        """
        names = top_by_id(self._source(), n, by, id, options)
        return self._next(names[0], *names)

    # Joins ----------------------------------------------------------------

    def join(
        self,
        right: KeyedStream[Any],
        *,
        within: Interval | None = None,
        window: Window | None = None,
        grace: Duration = "0s",
        how: str = "inner",
        select: JoinSelect | None = None,
        late: str | To | None = None,
        **options: Any,
    ) -> KeyedStream[Any]:
        """Pairs of records of this stream (left) and another (right) that have the same key.

        - `within=interval("-5s", "10s")`: right.time is from left.time - 5 s to left.time + 10 s.
          Each record is kept until the watermark has passed its last possible partner.
        - `window=tumbling("1m")`: both are in the same window (also `hopping`, `same_window`).
          Joined rows have `window_start` and `window_end`; `grace` as with `window`.
        - neither: all records that ever arrived, kept for ever.
        - `how`: "inner", "left" or "full". Records without a partner are sent when no partner can
          arrive any more: with neither `within` nor `window`, at the end of the input.
        - `select`: {"price": "left.price", "bid": "right.price"}, or a function of both values
          (dicts; None for a missing side). Without it rows have the columns of both sides. A name
          that both sides have, and that is not the key, is then an error.
        - `late`: "drop" (counted), `to(stream)` or, without window, "process".

        The timestamp of a pair is the later of both times; of a row of a window `window_end - 1`.
        """
        made = join(
            self._catalog, self._side(), self._right(right, "join"), within=within, window=window,
            grace=grace, how=how, select=select, late=late, **options,
        )  # fmt: skip
        return self._joined(made)

    def join_asof(
        self,
        right: KeyedStream[Any],
        *,
        within: Duration | None = None,
        how: str = "left",
        select: JoinSelect | None = None,
        late: str | To = "drop",
        **options: Any,
    ) -> KeyedStream[Any]:
        """Joins each record with the newest record of `right` that has its key and is not after it.

        `right` is a table that changes: each record replaces its key's row from its time on.
        Records wait for the watermark, so the result is exact. `within`: how old the row may be.
        `how`: "left" keeps records without such a row, "inner" drops them. `select` as in `join`.
        `late`: "drop" (counted), `to(stream)` or "process". With "process", a late row of the table
        counts for later records, and a late record gets the newest row, or none if that is younger.
        """
        made = join_asof(
            self._catalog, self._side(), self._right(right, "join_asof"), within=within, how=how,
            select=select, late=late, **options,
        )  # fmt: skip
        return self._joined(made)

    def _side(self) -> Side:
        known = self._catalog.columns_of(self.name)
        return Side(self.name, self.key, known, self.key_columns)

    def _right(self, given: Any, step: str) -> Side:
        where = f"{self.name}.{step}"
        right = check_stream(given, f"{where} takes a stream with a key")
        if not isinstance(right, KeyedStream):
            raise InvalidPipeline(
                f"{right.name}.{step} needs a key: {right.name}.key_by(...) before it"
            )
        right.name_in(self._catalog, where)
        return right._side()

    def _joined(self, made: Made) -> KeyedStream[Any]:
        name, columns, helpers = made
        if columns is not None:
            self._catalog.know_columns(name, columns)
        return self._rows_of(name, *helpers)

    def _source(self) -> KeyedSource:
        return KeyedSource(self._catalog, self.name, self.key, self.key_columns)

    def _all_time(self) -> WindowedStream[KeyedStream[Any]]:
        return WindowedStream(self._source(), self._rows_of, whole(), emit="changes")

    def _rows_of(self, made: str, *helpers: str) -> KeyedStream[Any]:
        """A stream of rows that have the key in columns, and the helper steps for it."""
        columns = self.key_columns
        key: KeyGiven = columns[0] if len(columns) == 1 else columns
        return KeyedStream(self._catalog, made, key, columns, made_by=(made, *helpers))

    def _next(self, name: str, *made_by: str) -> Any:
        return KeyedStream(self._catalog, name, self.key, self.key_columns, made_by=made_by)


NO_STREAM_HAS = ("name", "key")


class NoStream(Stream[Any]):
    """The result of `compute` for a computation without outputs: no step can follow."""

    def __init__(self, catalog: Catalog, computation: str) -> None:
        super().__init__(catalog, "")
        self._computation = computation

    if not TYPE_CHECKING:

        def __getattribute__(self, name: str) -> Any:
            if not name.startswith("_") and name not in NO_STREAM_HAS:
                raise InvalidPipeline(
                    f"computation {self._computation!r} has no outputs=, so there is no stream to "
                    f'{name}: compute(..., outputs="...")'
                )
            return super().__getattribute__(name)


def stream_of(catalog: Catalog, node: Node) -> Stream[Any]:
    """The first stream that a computation produces."""
    streams = list(node.outputs.values())
    return Stream(catalog, streams[0]) if streams else NoStream(catalog, node.name)
