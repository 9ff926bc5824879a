"""Random steps under a key: windows with aggregates, `count`, `reduce` and `top`.

Not drawn, as they are documented to depend on the cut: windows by ingestion or processing time
(the wall time of an epoch), and `reduce(ttl=)` (judged by the time of the hook).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from tests.property.mixed.functions import (
    Appended,
    Counted,
    Do,
    kinds_merged,
    kinds_seen,
    plus,
    whole_numbers,
)
from tests.property.mixed.shapes import DEAD, At, Shape, Unfit
from tests.property.mixed.stateless_steps import a_column, settled

from headrace import agg, every, hopping, same_window, session, sliding, to, tumbling, whole
from headrace.pipeline.fluent.stream import KeyedStream

WINDOW = ("window_start", "window_end")
SIZES = (1, 10, 40, 200, 200)
"""Of windows, in microseconds; the records of a case lie within some sixty."""


@dataclass(frozen=True)
class Key:
    """What `key_by` is given: columns (none for one key for all), or a function of a column."""

    columns: tuple[str, ...]
    function: Do | None = None
    named: bool = False

    @staticmethod
    def draw(dice: random.Random, shape: Shape) -> Key:
        raw = [column for column in shape.raw if column not in WINDOW]
        draw = dice.random()
        if not raw or draw < 0.1:
            return (
                Key(()) if draw < 0.05 or not shape.columns else Key((dice.choice(shape.columns),))
            )
        if shape.records and "k" in raw:
            if draw < 0.2:
                pair = dice.random() < 0.7
                name, column = ("of_pair", "j") if pair else ("of_nested", "k")
                return Key(("k", column), Do(name, column), named=dice.random() < 0.5)
            if draw < 0.3:
                return Key(("v",) if "v" in raw else ("k",))
            return Key(("k", "j") if draw < 0.5 and "j" in raw else ("k",))
        return Key(tuple(raw[:2]) if draw < 0.4 else (raw[0],))

    @property
    def rows(self) -> tuple[str, ...]:
        """The columns that rows of a keyed step have for it."""
        if self.function is None:
            return self.columns
        return ("u",) if self.named else ("key",)

    def keyed(self, at: At) -> tuple[KeyedStream[Any], Shape]:
        """The stream under this key, and what is known of it then."""
        stream, shape = at.stream, at.shape
        known = set(self.columns) <= set(shape.raw)
        if self.function is not None and not known:
            raise Unfit
        if not set(self.columns) <= set(shape.all_columns):
            raise Unfit
        if self.columns and known:
            at.wiring.links.add(tuple(raw for c in self.columns for raw in shape.raw[c]))
        else:
            shape = replace(shape, local=False)
        if self.function is None:
            return stream.key_by(*self.columns), shape
        if self.named:
            return stream.key_by(u=self.function), shape
        return stream.key_by(self.function), shape

    def raw(self, shape: Shape) -> dict[str, tuple[str, ...]]:
        """Which columns of the source the key's columns in rows come of."""
        if self.function is not None:
            return {self.rows[0]: tuple(raw for c in self.columns for raw in shape.raw[c])}
        return {column: shape.raw[column] for column in self.columns if column in shape.raw}


@dataclass(frozen=True)
class Aggregated:
    """One of `headrace.agg`."""

    name: str
    column: str

    @staticmethod
    def draw(dice: random.Random, shape: Shape) -> Aggregated:
        return Aggregated(dice.choice(list(AGGREGATES)), a_column(dice, shape))

    def build(self) -> agg.Aggregate:
        return AGGREGATES[self.name](self.column)


AGGREGATES: dict[str, Any] = {
    "count": lambda column: agg.count(),
    "count_of": agg.count,
    "sum": agg.sum,
    "min": agg.min,
    "max": agg.max,
    "mean": agg.mean,
    "variance": agg.variance,
    "variance_of_all": lambda column: agg.variance(column, population=True),
    "stddev": agg.stddev,
    "distinct": agg.distinct,
    "distinct_nearly": lambda column: agg.distinct(column, error=0.2),
    "first": agg.first,
    "last": agg.last,
    "top": lambda column: agg.top(2, column),
    "collect": agg.collect,
    "quantiles": lambda column: agg.quantiles(column, 0.0, 0.5, 1.0),
    "fold": lambda column: agg.fold(0, whole_numbers, plus, column=column),
    "fold_records": lambda column: agg.fold([], kinds_seen, kinds_merged),
}


@dataclass(frozen=True)
class Windowed:
    """`window(...)` and `count`, `aggregate` or `top` over it."""

    key: Key
    kind: str
    size: int
    emit: str
    grace: int
    late: bool
    what: tuple[Aggregated, ...] | str
    n: int = 1
    ties: bool = False

    @staticmethod
    def draw(dice: random.Random, shape: Shape) -> Windowed:
        settled(shape)
        kinds = ["tumbling", "hopping", "sliding", "session", "whole"]
        kind = "same" if shape.windowed and dice.random() < 0.6 else dice.choice(kinds)
        emit = "final"
        if kind != "sliding" and dice.random() < 0.4:
            emit = dice.choice(("on_time", "changes", "every_time", "every_records"))
        draw = dice.random()
        what: tuple[Aggregated, ...] | str
        if draw < 0.1:
            what = "count"
        elif draw < 0.3 and kind != "sliding" and emit in ("final", "on_time"):
            what = a_column(dice, shape)  # `top` by it
        else:
            what = tuple(Aggregated.draw(dice, shape) for _ in range(dice.choice((1, 2, 3, 3))))
        grace = dice.choice((0, 0, 2, 20))
        late = dice.random() < 0.2 and kind != "whole"
        return Windowed(
            Key.draw(dice, shape), kind, dice.choice(SIZES), emit, grace, late, what,
            dice.choice((1, 2, 3)), dice.random() < 0.4,
        )  # fmt: skip

    def build(self, at: At, name: str) -> At:
        settled(at.shape)
        if self.kind == "same" and not at.shape.windowed:
            raise Unfit
        stream, shape = self.key.keyed(at)
        emit: Any = {"every_time": every("5us"), "every_records": every(2)}.get(
            self.emit, self.emit
        )
        late: Any = {"late": to(f"{name}.late")} if self.late else {}
        options: dict[str, Any] = {"grace": f"{self.grace}us", "emit": emit, "errors": DEAD, **late}
        windowed = stream.window(self._window(), **options)
        aggregates = {}
        if self.what == "count":
            made, columns = windowed.count("a"), ("a",)
        elif isinstance(self.what, str):
            made = windowed.top(self.n, by=self.what, ties=self.ties)
            columns = tuple(c for c in shape.columns if c not in self.key.rows)
        else:
            aggregates = {f"{'abc'[i]}": one.build() for i, one in enumerate(self.what)}
            made, columns = windowed.aggregate(**aggregates), tuple(aggregates)
        cut = () if self.kind == "whole" else WINDOW
        # Without late records there are no corrections: what is emitted on time is final.
        early = self.emit not in ("final", "on_time")
        # Rows of all time that wait are stamped so that they are not late when they come: by the
        # watermark of the epoch before.
        waits = self.kind == "whole" and self.emit in ("every_time", "every_records")
        shape = replace(
            shape, columns=columns, raw=self.key.raw(shape), records=False, arrival=False,
            windowed=bool(cut), last_by=(*self.key.rows, *cut) if early else None,
            stamped=not waits,
        )  # fmt: skip
        return at.settle(made, shape, name)

    def _window(self) -> Any:
        size = f"{self.size}us"
        if self.kind == "hopping":
            return hopping(size, every=f"{max(1, self.size // 3)}us")
        plain = {"tumbling": tumbling, "sliding": sliding, "session": session}
        return plain[self.kind](size) if self.kind in plain else SIZELESS[self.kind]()


SIZELESS = {"whole": whole, "same": same_window}


@dataclass(frozen=True)
class Running:
    """`count()` or `aggregate()` without a window: rows that replace each other."""

    key: Key
    what: tuple[Aggregated, ...]

    @staticmethod
    def draw(dice: random.Random, shape: Shape) -> Running:
        settled(shape)
        what = tuple(Aggregated.draw(dice, shape) for _ in range(dice.choice((0, 2, 3))))
        return Running(Key.draw(dice, shape), what)

    def build(self, at: At, name: str) -> At:
        settled(at.shape)
        stream, shape = self.key.keyed(at)
        if self.what:
            aggregates: Any = {f"{'abc'[i]}": one.build() for i, one in enumerate(self.what)}
            made, columns = stream.aggregate(**aggregates, errors=DEAD), tuple(aggregates)
        else:
            made, columns = stream.count("a", errors=DEAD), ("a",)
        shape = replace(
            shape, columns=columns, raw=self.key.raw(shape), records=False, arrival=False,
            windowed=False, last_by=self.key.rows,
        )  # fmt: skip
        return at.settle(made, shape, name)


@dataclass(frozen=True)
class Reduce:
    """`reduce`, in the order of arrival or of time where that is defined."""

    column: str
    keys: tuple[str, ...]
    ordered: bool

    @staticmethod
    def draw(dice: random.Random, shape: Shape) -> Reduce:
        settled(shape)
        keys = [c for c in ("k", "j") if c in shape.raw]
        if not keys:
            raise Unfit
        chosen = tuple(keys if dice.random() < 0.3 else keys[:1])
        return Reduce(a_column(dice, shape), chosen, dice.random() < 0.4)

    def build(self, at: At, name: str) -> At:
        settled(at.shape)
        stream, shape = Key(self.keys).keyed(at)
        if not shape.local:
            raise Unfit
        function: Any = (Appended if shape.arrival else Counted)(self.column, self.keys)
        initial: Any = {"a": [], "b": 0}
        made = stream.reduce(function, initial, ordered=self.ordered, errors=DEAD)
        # By arrival every state is the same in every cut. Otherwise the last one is, but not its
        # time: that of the record which came last.
        last_by = None if shape.arrival else self.keys
        raw = {column: of for column, of in shape.raw.items() if column in self.keys}
        shape = replace(
            shape, columns=("a", "b"), raw=raw, records=False, arrival=False, windowed=False,
            last_by=last_by, stamped=shape.arrival, in_time=self.ordered,
        )  # fmt: skip
        return at.settle(made, shape, name)


@dataclass(frozen=True)
class TopById:
    """`top(n, by=, id=)`: over records, or over rows that replace each other."""

    key: Key
    n: int
    by: str
    id: tuple[str, ...]

    @staticmethod
    def draw(dice: random.Random, shape: Shape) -> TopById:
        if shape.last_by is not None:
            # The rows replace each other by these columns and no others.
            if not set(shape.last_by) <= set(shape.raw) or not shape.last_by:
                raise Unfit
            return TopById(Key(()), dice.choice((1, 2)), a_column(dice, shape), shape.last_by)
        if not shape.records or not shape.arrival:
            raise Unfit  # of rows with one time the last to arrive counts
        key = Key.draw(dice, shape)
        id = tuple(dice.sample(shape.all_columns, dice.choice((1, 1, 2))))
        if key.function is not None:
            raise Unfit
        return TopById(key, dice.choice((1, 2, 3)), a_column(dice, shape), id)

    def build(self, at: At, name: str) -> At:
        if at.shape.last_by is None and not (at.shape.records and at.shape.arrival):
            raise Unfit
        if at.shape.last_by is not None and not at.shape.in_time:
            raise Unfit
        stream, shape = self.key.keyed(at)
        made = stream.top(self.n, by=self.by, id=self.id, errors=DEAD)
        shape = replace(
            shape, raw=self.key.raw(shape), records=False, arrival=False, windowed=False,
            last_by=(*self.key.rows, "rank"), stamped=False,
        )  # fmt: skip
        return at.settle(made, shape, name)


KEYED: tuple[Any, ...] = (Windowed, Windowed, Windowed, Running, Reduce, TopById)
