"""Random steps without a key, `dedup` and `lookup`. Each is data, so it can be printed and dropped.

Not drawn: `map_table` (its function sees a table, and what is in it depends on the cut, as its
documentation says).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tests.property.mixed.functions import CONDITIONS, FLAT_MAPS, MAPS, Do
from tests.property.mixed.shapes import DEAD, At, Shape, Unfit

CARRIED = ("n", "t", "s", "k", "j")
"""Columns of records that steps keep, so that others can be drawn behind them."""


def a_column(dice: random.Random, shape: Shape) -> str:
    """A column of values; now and then one of the others, or one that nobody has."""
    draw = dice.random()
    if draw < 0.03 and shape.records:
        return "nobody"
    if not shape.all_columns:
        raise Unfit
    return dice.choice(shape.all_columns if draw < 0.12 else shape.columns or shape.all_columns)


def settled(shape: Shape) -> None:
    """A step that drops rows, or counts them, cannot follow rows that replace each other: what
    it makes of the earlier ones would stay."""
    if shape.last_by is not None:
        raise Unfit


@dataclass(frozen=True)
class Expression:
    """An Arrow expression over one or two columns."""

    name: str
    column: str
    other: str

    def build(self) -> pc.Expression:
        a, b = pc.field(self.column), pc.field(self.other)
        return {**CONDITIONS_OF_ARROW, **VALUES_OF_ARROW}[self.name](a, b)


CONDITIONS_OF_ARROW: dict[str, Any] = {
    "positive": lambda a, b: a > 0,
    "small": lambda a, b: a < 2.5,
    "one": lambda a, b: a == 1,
    "not_a": lambda a, b: a != "a",
    "null": lambda a, b: a.is_null(),
    "there": lambda a, b: a.is_valid(),
    "alike": lambda a, b: a == b,
    "either": lambda a, b: (a > 0) | b.is_null(),
}
VALUES_OF_ARROW: dict[str, Any] = {
    "plus": lambda a, b: pc.add(a, 1),
    "half": lambda a, b: pc.divide(a, 2),
    "negative": lambda a, b: pc.negate(a),
    "upper": lambda a, b: pc.utf8_upper(a),
    "first_there": lambda a, b: pc.coalesce(a, b),
    "chosen": lambda a, b: pc.if_else(a.is_null(), b, a),
    "text": lambda a, b: a.cast(pa.string()),
    "length": lambda a, b: pc.list_value_length(a),
    "inner": lambda a, b: pc.struct_field(a, [0]),
    "sum": lambda a, b: pc.add_checked(a, b),
}


def an_expression(dice: random.Random, shape: Shape, names: dict[str, Any]) -> Expression:
    """An expression over columns of the stream."""
    return Expression(dice.choice(list(names)), a_column(dice, shape), a_column(dice, shape))


@dataclass(frozen=True)
class Map:
    """`map` or `flat_map` by a function that may raise."""

    function: Do
    flat: bool

    @staticmethod
    def draw(dice: random.Random, shape: Shape) -> Map:
        settled(shape)
        flat = dice.random() < 0.35
        name = dice.choice(list(FLAT_MAPS if flat else MAPS))
        if not shape.columns:
            raise Unfit
        return Map(Do(name, dice.choice(shape.columns)), flat)

    def build(self, at: At, name: str) -> At:
        settled(at.shape)
        step = at.stream.flat_map if self.flat else at.stream.map
        shape = at.shape.changed(self.function.column)
        return at.settle(step(self.function, errors=DEAD), shape, name)


@dataclass(frozen=True)
class Filter:
    """`filter` by a function, or by an Arrow expression."""

    condition: Do | Expression

    @staticmethod
    def draw(dice: random.Random, shape: Shape) -> Filter:
        settled(shape)
        if dice.random() < 0.6:
            return Filter(an_expression(dice, shape, CONDITIONS_OF_ARROW))
        return Filter(Do(dice.choice(list(CONDITIONS)), a_column(dice, shape)))

    def build(self, at: At, name: str) -> At:
        settled(at.shape)
        by = self.condition.build() if isinstance(self.condition, Expression) else self.condition
        return at.settle(at.stream.filter(by, errors=DEAD), at.shape, name)


@dataclass(frozen=True)
class Select:
    """`select` by name and by expression."""

    kept: tuple[str, ...]
    made: tuple[tuple[str, Expression | str], ...]

    @staticmethod
    def draw(dice: random.Random, shape: Shape) -> Select:
        settled(shape)
        carried = CARRIED if shape.records else tuple(shape.raw)
        rest = [column for column in shape.columns if column not in carried]
        kept = dice.sample(rest, dice.randint(0, len(rest)))
        made: list[tuple[str, Expression | str]] = []
        for name in dice.sample(("v", "e", "f"), dice.choice((0, 1, 2))):
            if name not in (*kept, *carried):
                simple = dice.random() < 0.25
                column = a_column(dice, shape)
                made.append(
                    (name, column if simple else an_expression(dice, shape, VALUES_OF_ARROW))
                )
        if not (carried or kept or made):
            raise Unfit
        return Select((*carried, *kept), tuple(made))

    def build(self, at: At, name: str) -> At:
        settled(at.shape)
        made = {
            column: given.build() if isinstance(given, Expression) else given
            for column, given in self.made
        }
        values = [c for c in self.kept if c not in (*CARRIED, *KEYLIKE)]
        shape = replace(
            at.shape.changed(*made),
            columns=(*values, *made),
            windowed=at.shape.windowed and "window_end" in self.kept,
        )
        raw = {column: of for column, of in shape.raw.items() if column in self.kept}
        return at.settle(
            at.stream.select(*self.kept, **made, errors=DEAD), replace(shape, raw=raw), name
        )


KEYLIKE = ("window_start", "window_end", "rank")

SQL_VALUES = ("{a}", "{a} + 1", "{a} / 2", "{a} || 'x'", "coalesce({a}, {b})", "typeof({a})",
              "CAST({a} AS VARCHAR)", "{a} IS NULL", "{a} > 1", "{a} = {b}", "-{a}",
              "TRY_CAST({a} AS INTEGER)", "[{a}]", "upper({a})")  # fmt: skip
SQL_CONDITIONS = ("true", "{a} IS NOT NULL", "{a} > 0", "{a} = 'a'", "{a} = {b}",
                  "{a} IS NULL OR {a} < 2")  # fmt: skip


@dataclass(frozen=True)
class Sql:
    """`sql`: a SELECT of columns, expressions and a condition."""

    kept: tuple[str, ...]
    made: tuple[tuple[str, str], ...]
    where: str

    @staticmethod
    def draw(dice: random.Random, shape: Shape) -> Sql:
        settled(shape)

        def filled(template: str) -> str:
            a, b = (f'"{a_column(dice, shape)}"' for _ in range(2))
            return template.format(a=a, b=b)

        where = filled(dice.choice(SQL_CONDITIONS)) if dice.random() < 0.5 else ""
        if dice.random() < 0.2:
            return Sql(("*",), (), where)
        carried = CARRIED if shape.records else tuple(shape.raw)
        names = dice.sample(("v", "e", "f"), dice.choice((1, 2)))
        made = [(name, filled(dice.choice(SQL_VALUES))) for name in names if name not in carried]
        if not made:
            raise Unfit
        return Sql(carried, tuple(made), where)

    def build(self, at: At, name: str) -> At:
        settled(at.shape)
        items = [c if c == "*" else f'"{c}"' for c in self.kept]
        items += [f'{text} AS "{alias}"' for alias, text in self.made]
        where = f" WHERE {self.where}" if self.where else ""
        shape = at.shape
        if self.kept != ("*",):
            shape = shape.changed(*(alias for alias, _ in self.made))
            raw = {column: of for column, of in shape.raw.items() if column in self.kept}
            columns = tuple(alias for alias, _ in self.made)
            windowed = shape.windowed and "window_end" in self.kept
            shape = replace(shape, raw=raw, columns=columns, windowed=windowed)
        made = at.stream.sql(f"SELECT {', '.join(items)} FROM stream{where}", errors=DEAD)
        return at.settle(made, shape, name)


@dataclass(frozen=True)
class Split:
    """`split`, by functions or by expressions; the steps behind it follow one part."""

    first: Do | Expression
    second: Do | Expression
    goes_on: str

    @staticmethod
    def draw(dice: random.Random, shape: Shape) -> Split:
        settled(shape)
        conditions: list[Do | Expression] = [
            an_expression(dice, shape, CONDITIONS_OF_ARROW) for _ in range(2)
        ]
        if dice.random() < 0.4:
            conditions = [
                Do(dice.choice(list(CONDITIONS)), a_column(dice, shape)) for _ in range(2)
            ]
        return Split(*conditions, dice.choice(("one", "two", "rest", "rest")))

    def build(self, at: At, name: str) -> At:
        settled(at.shape)
        one, two = (
            given.build() if isinstance(given, Expression) else given
            for given in (self.first, self.second)
        )
        ports = {f"{name}_one": one, f"{name}_two": two, f"{name}_rest": None}
        places = {
            port: at.settle(made, at.shape, "")
            for port, made in at.stream.split(**ports, errors=DEAD).items()
        }
        return places[f"{name}_{self.goes_on}"]


@dataclass(frozen=True)
class Union:
    """`union` of two steps over the same stream."""

    left: Filter
    right: Map

    @staticmethod
    def draw(dice: random.Random, shape: Shape) -> Union:
        return Union(Filter.draw(dice, shape), Map.draw(dice, shape))

    def build(self, at: At, name: str) -> At:
        left = self.left.build(at, f"{name}l")
        right = self.right.build(at, f"{name}r")
        # Both are inputs of their own from here on.
        shape = replace(right.shape, arrival=False)
        return at.settle(left.stream.union(right.stream), shape, name)


@dataclass(frozen=True)
class Dedup:
    """`dedup` by a column, several or a function. It goes by arrival."""

    id: str | tuple[str, ...] | Do
    within: int

    @staticmethod
    def draw(dice: random.Random, shape: Shape) -> Dedup:
        raw = list(shape.raw)
        if not shape.arrival or not raw:
            raise Unfit
        one = dice.choice(raw)
        choices: list[Any] = [one, tuple(dice.sample(raw, min(2, len(raw)))), Do("of_column", one)]
        return Dedup(dice.choice(choices), dice.choice((0, 3, 20, 1000)))

    def build(self, at: At, name: str) -> At:
        settled(at.shape)
        columns = (self.id.column,) if isinstance(self.id, Do) else self.id
        columns = (columns,) if isinstance(columns, str) else columns
        if not at.shape.arrival or not set(columns) <= set(at.shape.raw):
            raise Unfit
        at.wiring.links.add(tuple(raw for c in columns for raw in at.shape.raw[c]))
        made = at.stream.dedup(self.id, within=f"{self.within}us", errors=DEAD)
        return at.settle(made, replace(at.shape, arrival=False), name)


TABLES: dict[str, Any] = {
    "of_text": {"a": {"g": 1, "h": None}, "b": {"g": "x", "h": [1]}, "1": {"g": 0.5, "h": 2}},
    "of_ints": {1: {"g": 1, "h": "one"}, 2: {"g": 2**53 + 1, "h": "two"}},
    "of_rows": [{"id": "a", "g": 1}, {"id": "a", "g": 2}, {"id": "b", "g": None}],
}


@dataclass(frozen=True)
class Lookup:
    """`lookup` in a small table."""

    table: str
    column: str
    how: str

    @staticmethod
    def draw(dice: random.Random, shape: Shape) -> Lookup:
        settled(shape)
        return Lookup(
            dice.choice(list(TABLES)), a_column(dice, shape), dice.choice(("left", "inner"))
        )

    def build(self, at: At, name: str) -> At:
        settled(at.shape)
        on = {self.column: "id"} if self.table == "of_rows" else self.column
        made = at.stream.lookup(TABLES[self.table], on=on, how=self.how, errors=DEAD)
        columns = tuple(dict.fromkeys([*at.shape.columns, "g"]))
        return at.settle(made, replace(at.shape.changed("g", "h"), columns=columns), name)


STATELESS: tuple[Any, ...] = (Map, Filter, Select, Sql, Split, Union, Dedup, Lookup)
