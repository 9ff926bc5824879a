"""`KeyedStream`: what a stream can do once it has a key."""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.errors import InvalidPipeline
from headrace.model.functions import checked_function
from headrace.model.key_spec import KeyGiven
from headrace.model.values.column_names import check_column
from headrace.model.values.time import Duration
from headrace.operators.aggregates.aggregate import Aggregate
from headrace.operators.joins.bounds import Interval
from headrace.operators.joins.combine import Select, Side
from headrace.operators.steps.reduce import reducer
from headrace.operators.top.by_id import BUCKET, Bucketed, BucketTop, MergeTop
from headrace.operators.windows.whole import whole
from headrace.operators.windows.window import Every, Window
from headrace.pipeline.fluent.joins import join, join_asof
from headrace.pipeline.fluent.stream import Stream, V
from headrace.pipeline.fluent.windowed_stream import StepOption, WindowedStream
from headrace.pipeline.graph.graph import To

if TYPE_CHECKING:
    from headrace.pipeline.fluent.builder import PipelineBuilder

S = TypeVar("S")


class KeyedStream(Stream[V]):
    """A stream and the way in which later steps take the key from its values."""

    def __init__(
        self,
        builder: PipelineBuilder,
        name: str,
        key: KeyGiven,
        columns: tuple[str, ...],
        *,
        made_by: tuple[str, ...] = (),
    ) -> None:
        super().__init__(builder, name, made_by=made_by)
        self.key = key
        self.key_columns = columns
        """How the parts of the key are called in rows that steps make."""

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

        The function gets the value, then the state (a copy of `initial` at first; None is one
        too), and returns the new state, which is also sent on: rows are what it gives, so put
        the key into them where they need it, `{"user": value["user"], ...}`. With
        `outputs=True` it returns (state, output), and the output is sent unless it is None. A new
        state of None forgets the key; so does the time `ttl` without a record. `ordered=True`
        folds in the order of time.
        The state is numbers, text, lists or dicts; or a tuple, set, dataclass or Struct where
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
    ) -> WindowedStream:
        """Cuts each key's records into windows, for `count`, `aggregate` and `top`.

        - `by`: "event" time (default), or the wall time of the epoch that reads ("ingestion")
          or handles ("processing") a record; a replay repeats both. Ingestion time ends where
          a step keeps records back, such as a window: behind it there is processing time.
        - `grace`: a window stays open for records that come that much late.
        - `late`: what is done with records whose windows have closed: "drop" (they are
          counted), or `to(stream)`.
        - `emit`: "final" (once, when it closes at end + grace), "on_time" (at its end, then
          again with every epoch that corrects it), "changes" (with every epoch that changes
          it), `every("5s")` or `every(100)` records; the last three also when it closes.
        - More options are those of `p.compute`, such as `errors=to("dead")` for records without
          a usable key.
        """
        return WindowedStream(self, window, by=by, grace=grace, late=late, emit=emit, **options)

    def count(self, name: str = "count", **options: Any) -> KeyedStream[Any]:
        """How many records each key has had; sent with every epoch that changes it."""
        return self._all_time().count(name, **options)

    def aggregate(self, *unnamed: Any, **aggregates: Aggregate | StepOption) -> KeyedStream[Any]:
        """Aggregates of all of a key's records; sent with every epoch that changes them.

        Options of `p.compute` stand beside them: `aggregate(n=agg.count(), errors=to("dead"))`.
        """
        return self._all_time().aggregate(*unnamed, **aggregates)

    def top(
        self, n: int, *, by: str, id: str | tuple[str, ...] = (), **options: Any
    ) -> KeyedStream[Any]:
        """The n rows with the largest `by` among rows that replace each other by `id`.

        For streams of changes, such as `count()`: the latest row of each id (a column, or several)
        counts, and one without a value in `by` takes its id off the list. The whole list is sent,
        with `rank` from 1 on, in every epoch that changes it; ranks that a shorter list no longer
        has come with nothing but key and rank. It is found in two phases, so no slot sees all
        rows. (For closed windows: `window(...).top(n, by=)`.)
        """
        where = f"{self.name}.top"
        if type(n) is not int or n < 1:
            raise InvalidPipeline(f"{where}: n is a number from 1 on, not {n!r}")
        if id == ():
            raise InvalidPipeline(
                f"{where}: window(...).top(n, by=) for the rows of a window; id= for rows that "
                'replace each other: top(3, by="n", id="user")'
            )
        ids: Any = (id,) if isinstance(id, str) else id
        if not isinstance(ids, tuple) or not ids or not all(isinstance(c, str) for c in (by, *ids)):
            raise InvalidPipeline(
                f"{where}: by= names a column, id= a column or a tuple of them, not "
                f"by={by!r:.40}, id={id!r:.80}"
            )
        if callable(self.key):
            raise InvalidPipeline(f"{where}: key by columns, not by a function")
        builder, columns = self._builder, self.key_columns
        known = self._known()
        for column in (by, *ids):
            check_column(column, known, where=where)
        made = builder._free(where)
        dealt, best = f"{made}.dealt", f"{made}.best"
        policy = {"errors": options["errors"]} if "errors" in options else {}
        builder._add(dealt, Bucketed(ids, columns), {self.name: None}, dealt, **policy)
        first: KeyGiven = (*columns, BUCKET)
        builder._add(best, BucketTop(n, by, ids), {dealt: first}, best, **options)
        parts = tuple(f"k{i}" for i in range(len(columns)))
        second: KeyGiven = parts[0] if len(parts) == 1 else parts
        merge = MergeTop(n, columns)
        builder._add(made, merge, {best: second}, made, **{**self._alone(), **options})
        if known is not None:
            builder._known_columns[made] = tuple(dict.fromkeys([*known, "rank"]))
        return KeyedStream(builder, made, self.key, columns, made_by=(made, dealt, best))

    # Joins ----------------------------------------------------------------

    def join(
        self,
        right: KeyedStream[Any],
        *,
        within: Interval | None = None,
        window: Window | None = None,
        grace: Duration = "0s",
        how: str = "inner",
        select: Select | None = None,
        late: str | To | None = None,
        **options: Any,
    ) -> KeyedStream[Any]:
        """Pairs of records of this stream (left) and another (right) that have the same key.

        - `within=interval("-5s", "10s")`: right.time lies in left.time - 5 s to left.time + 10 s.
          Each record is kept until its last possible partner is in, by the watermark.
        - `window=tumbling("1m")`: both lie in the same window (also `hopping`, `same_window`).
          Joined rows have `window_start` and `window_end`; `grace` as with `window`.
        - neither: everything that ever came, kept for ever.
        - `how`: "inner", "left" or "full". Records without a partner come out when none can come
          any more: with neither `within` nor `window`, at the very end.
        - `select`: {"price": "left.price", "bid": "right.price"}, or a function of both values
          (dicts, None where there is none). Without it rows have the columns of both sides, and
          a name that both have, and that is not the key, is an error.
        - `late`: "drop" (counted), `to(stream)` or, without window, "process".

        Pairs are stamped with the later of both times, rows of windows with `window_end - 1`.
        """
        if not isinstance(right, KeyedStream):
            raise (
                unkeyed(right, "join")
                if isinstance(right, Stream)
                else InvalidPipeline(
                    f"{self.name}.join takes a stream with a key, not {right!r:.80}"
                )
            )
        self._check_same_pipeline(right, "join")
        made, columns, helpers = join(
            self._builder, self._side(), right._side(), within=within, window=window, grace=grace,
            how=how, select=select, late=late, **options,
        )  # fmt: skip
        return self._joined(made, columns, *helpers)

    def join_asof(
        self,
        right: KeyedStream[Any],
        *,
        within: Duration | None = None,
        how: str = "left",
        select: Select | None = None,
        late: str | To = "drop",
        **options: Any,
    ) -> KeyedStream[Any]:
        """Each record with the newest one of `right` that has its key and is not after it.

        `right` is a table that changes: each record replaces its key's row from its time on.
        Records wait for the watermark, so the answer is exact. `within`: how old the row may be.
        `how`: "left" keeps records without such a row, "inner" drops them. `select` as in `join`.
        `late`: "drop" (counted), `to(stream)` or "process": a late row of the table then counts for
        what comes after it, and a late record finds the newest row, or none if that is younger.
        """
        if not isinstance(right, KeyedStream):
            raise unkeyed(right, "join_asof")
        self._check_same_pipeline(right, "join_asof")
        made, columns, helpers = join_asof(
            self._builder, self._side(), right._side(), within=within, how=how, select=select,
            late=late, **options,
        )  # fmt: skip
        return self._joined(made, columns, *helpers)

    def _side(self) -> Side:
        return Side(self.name, self.key, self._known(), self.key_columns)

    def _joined(
        self, made: str, columns: tuple[str, ...] | None, *helpers: str
    ) -> KeyedStream[Any]:
        if columns is not None:
            self._builder._known_columns[made] = columns
        return self._rows_of(made, *helpers)

    def _all_time(self) -> WindowedStream:
        return WindowedStream(self, whole(), emit="changes")

    def _alone(self) -> dict[str, Any]:
        """Options for a step under one key for all: more slots than one would stand idle."""
        return {"slots": 1} if self.key == () else {}

    def _rows_of(self, made: str, *helpers: str) -> KeyedStream[Any]:
        """Rows that hold the key in columns of their own, and the steps that help to make them."""
        columns = self.key_columns
        key: KeyGiven = columns[0] if len(columns) == 1 else columns
        return KeyedStream(self._builder, made, key, columns, made_by=(made, *helpers))

    def _same_key(self, stream: Stream[Any]) -> KeyedStream[Any]:
        return KeyedStream(
            self._builder, stream.name, self.key, self.key_columns, made_by=stream._made_by
        )


def unkeyed(stream: Stream[Any], step: str) -> InvalidPipeline:
    """The error for a step that needs a key."""
    return InvalidPipeline(f"{stream.name}.{step} needs a key: {stream.name}.key_by(...) before it")
