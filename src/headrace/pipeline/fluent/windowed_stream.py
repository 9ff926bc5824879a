"""`WindowedStream`: a keyed stream cut into windows, and the steps over windows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from headrace.errors import InvalidPipeline
from headrace.model.values.column_names import check_column, check_numbers
from headrace.model.values.time import Duration, duration
from headrace.operators.aggregates.aggregate import Aggregate
from headrace.operators.aggregates.count import Count
from headrace.operators.top.ranking import name_in
from headrace.operators.top.rows import CombinedTop, TopRows, WindowTop
from headrace.operators.windows.aggregation import CombinedAggregate, WindowAggregate
from headrace.operators.windows.late_filter import LateAside
from headrace.operators.windows.window import WINDOW_COLUMNS, Every, Window
from headrace.operators.windows.withdrawals import WITHDRAWN, withdraws
from headrace.pipeline.fluent.keyed_source import KeyedSource
from headrace.pipeline.graph.graph import To

CLOCKS = ("event", "ingestion", "processing")
MODES = ("final", "on_time", "changes")

StepOption: TypeAlias = To | str | int | float | timedelta | None
"""The types of options of `p.compute`; an aggregate is none of these."""


K = TypeVar("K")


class WindowedStream(Generic[K]):
    """Windows over a keyed stream, and when their rows are emitted; K is the stream of rows."""

    def __init__(
        self,
        stream: KeyedSource,
        rows_of: Callable[..., K],
        window: Window,
        *,
        by: str = "event",
        grace: Duration = "0s",
        late: str | To = "drop",
        emit: str | Every = "final",
        **options: Any,
    ) -> None:
        self._stream, self._rows_of = stream, rows_of
        where = f"{stream.name}.window"
        if not isinstance(window, Window):
            raise InvalidPipeline(
                f'{where} takes a window such as tumbling("1h"), not {window!r:.80}'
            )
        if by not in CLOCKS:
            raise InvalidPipeline(f"{where}: by= is one of {', '.join(CLOCKS)}, not {by!r}")
        if not (isinstance(late, To) or late == "drop"):
            raise InvalidPipeline(f'{where}: late= is "drop" or to(stream), not {late!r}')
        if not (isinstance(emit, Every) or emit in MODES):
            raise InvalidPipeline(
                f"{where}: emit= is one of {', '.join(MODES)}, or every(...), not {emit!r}"
            )
        self._grace_us = duration(grace, what=f"{where}: grace=")
        keeper = stream.catalog.kept_back(stream.name) if by == "ingestion" else None
        if keeper is not None:
            raise InvalidPipeline(
                f'{where}: by="ingestion" is the wall time at which a record was read, and '
                f'{keeper!r} may send rows later than that. Use by="processing", the wall time at '
                "which this window gets them; or leave timestamp= out of p.read: records then "
                "carry the time at which they are read, and windows by event time go by it"
            )
        if by != "event":
            if window.event_time_only:
                raise InvalidPipeline(f"{where}: {window.name} goes by event time alone")
            if self._grace_us or isinstance(late, To):
                raise InvalidPipeline(
                    f"{where}: by {by} time nothing is late; leave grace= and late="
                )
        if window.final_only and emit != "final":
            raise InvalidPipeline(f'{where}: {window.name} windows are emitted once, emit="final"')
        self._window, self._by, self._late, self._emit = window, by, late, emit
        self._options = options

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            raise AttributeError(
                f"{self._stream.name}.window(...) has no {name!r}: first say what to compute over "
                "each window: .count(), .aggregate(n=agg.count()) or .top(n, by=)"
            )

    def count(self, name: str = "count", **options: Any) -> K:
        """The number of records of each window, as the column `name`."""
        if type(name) is not str or not name:
            raise InvalidPipeline(f"{self._stream.name}.count takes a column's name, not {name!r}")
        return self._aggregate("count", {name: Count(None)}, options)

    def aggregate(self, *unnamed: Any, **aggregates: Aggregate | StepOption) -> K:
        """Several aggregates at once, each as a column: `aggregate(n=agg.count())`.

        Options, such as `errors=to("dead")`, may be added: they are never aggregates.
        """
        where = f"{self._stream.name}.aggregate"
        if unnamed:
            raise InvalidPipeline(f"{where}: give each a name: aggregate(n=agg.count())")
        named = {name: one for name, one in aggregates.items() if isinstance(one, Aggregate)}
        options = {name: given for name, given in aggregates.items() if name not in named}
        for name, given in options.items():
            if name not in self._stream.catalog.step_options():
                raise InvalidPipeline(
                    f"{where}: {name} is one of headrace.agg, such as agg.count(), "
                    f"not {given!r:.80}"
                )
        if not named:
            raise InvalidPipeline(f"{where}: name at least one: aggregate(n=agg.count())")
        return self._aggregate("aggregate", named, options)

    def top(
        self,
        n: int,
        *,
        by: str | tuple[str, ...],
        ties: bool = False,
        numbered: bool = False,
        **options: Any,
    ) -> K:
        """The n rows of each window with the largest `by`, with their `rank` from 1 on.

        `by` is a column, or several: `by=("price", "-at")` ranks by the price and, among equal
        prices, by the smallest time; the minus means the smallest first. A row without a value in
        the first column has no rank. Rows with equal values have equal ranks and are ordered by
        their encoding; `numbered=True` gives each row a rank of its own. `ties=True` keeps all rows
        that are equal to the n-th.
        """
        where = f"{self._stream.name}.top"
        if type(n) is not int or n < 1:
            raise InvalidPipeline(f"{where}: n is a number from 1 on, not {n!r}")
        columns: Any = (by,) if isinstance(by, str) else by
        if (
            not isinstance(columns, tuple)
            or not columns
            or not all(isinstance(column, str) and name_in(column) for column in columns)
        ):
            raise InvalidPipeline(
                f'{where}: by= names a column, or several: by=("price", "-at"), not {by!r:.80}'
            )
        if not self._window.can_rank:
            raise InvalidPipeline(f"{where} does not go with {self._window.name} windows")
        kinds = (CombinedTop, WindowTop)
        return self._aggregate(
            "top", {"top": TopRows.by(columns, n, ties, numbered)}, options, kinds
        )

    def _aggregate(
        self,
        step: str,
        aggregates: dict[str, Aggregate],
        options: dict[str, Any],
        kinds: tuple[type[WindowAggregate], type[WindowAggregate]] | None = None,
    ) -> K:
        stream, catalog, window = self._stream, self._stream.catalog, self._window
        where = f"{stream.name}.{step}"
        ranks = kinds is not None
        self._check(where, aggregates, options, ranks)
        kinds = kinds or window.computations(self._by, self._emit)
        combined, plain = kinds or (CombinedAggregate, WindowAggregate)
        options = {**stream.slot_options, **self._options, **options}
        late = self._late if isinstance(self._late, To) else None
        # For windows that merge, lateness is known only in their slot. And records that are sent
        # aside must not be combined before. The same holds if the window has its own watermark.
        judged_there = late is not None and (window.merging or "watermark" in options)
        apart = judged_there or isinstance(options.get("late"), To)
        computation = (plain if apart else combined)(
            window,
            aggregates,
            key_columns=stream.key_columns,
            by=self._by,
            grace_us=self._grace_us,
            emit=self._emit,
            late=judged_there,
        )
        made = catalog.free(where)
        if late is not None and late.stream == made:
            raise InvalidPipeline(f"{where}: late=to({made!r}) is the stream of its own rows")
        source, outputs = stream.name, {"": made}
        if late is not None and judged_there:
            outputs["late"] = late.stream
        elif late is not None:
            source = self._judge(f"{made}.judged", late, options)
            computation.counts_late = False  # the step before it has counted them
        catalog.add_step(made, computation, {source: stream.key}, outputs, **options)
        if source != stream.name:
            catalog.alike(stream.name, source)
        if late is not None:
            catalog.pour([stream.name], late.stream)
        known = catalog.columns_of(stream.name)
        if known is not None or not ranks:
            own = (*(known or ()), "rank") if ranks else tuple(aggregates)
            columns = [*stream.key_columns, *self._window_columns(), *own, *self._marks()]
            catalog.know_columns(made, list(dict.fromkeys(columns)))
        return self._rows_of(made, *([] if source == stream.name else [source]))

    def _check(
        self, where: str, aggregates: dict[str, Aggregate], options: dict[str, Any], ranks: bool
    ) -> None:
        """Refuses columns that are missing, taken, or of the wrong type."""
        stream, window, marks = self._stream, self._window, self._marks()
        if "late" in options and not window.endless:
            raise InvalidPipeline(f"{where}: say it where windows are made: window(..., late=)")
        taken = [*self._window_columns(), *marks]
        lost = [c for c in stream.key_columns if c in taken and not window.columns]
        if lost:
            raise InvalidPipeline(
                f"{where}: the key is called {lost[0]!r}, as a column of the window's rows is. "
                "Give it another name before: select(...), or key_by(name=function)"
            )
        for name in aggregates:
            if name in [*stream.key_columns, *WINDOW_COLUMNS, *marks] and not ranks:
                raise InvalidPipeline(f"{where}: {name!r} is a column of its key or window already")
        known = stream.catalog.columns_of(stream.name)
        for column in window.columns:
            if known is not None and column not in known:
                raise InvalidPipeline(
                    f"{where}: same_window() needs rows that come from a window, with a column "
                    f"{column!r}; there are: {', '.join(known)}"
                )
        schema = stream.catalog.schema_of(stream.name)
        for column in [c for one in aggregates.values() for c in one.columns()]:
            check_column(column, known, where=where)
        for one in aggregates.values():
            if schema is not None and one.numeric and one.column in schema.names:
                check_numbers(one.column, schema.arrow.field(one.column).type, where=where)

    def _judge(self, name: str, late: To, options: dict[str, Any]) -> str:
        """Adds a step that sends late records aside; returns the stream of the other records."""
        ports = {"": name, "late": late.stream}
        policy = {"errors": options["errors"]} if "errors" in options else {}
        judge = LateAside(self._window, self._grace_us)
        return self._stream.catalog.add_step(
            name, judge, {self._stream.name: None}, ports, **policy
        )

    def _window_columns(self) -> tuple[str, ...]:
        return () if self._window.endless else WINDOW_COLUMNS

    def _marks(self) -> tuple[str, ...]:
        return (WITHDRAWN,) if withdraws(self._window, self._emit) else ()
