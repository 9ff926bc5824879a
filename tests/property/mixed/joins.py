"""Random joins of every kind: of the two sides of a stream of records, or of rows that a step has
made with records of the source."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from tests.property.mixed.functions import Both
from tests.property.mixed.keyed_steps import Key
from tests.property.mixed.shapes import DEAD, At, Shape, Unfit
from tests.property.mixed.stateless_steps import a_column, settled

from headrace import hopping, interval, tumbling

BY_NAME = ("function", "mapping")
"""What a join can make of two sides that have columns of one name."""


@dataclass(frozen=True)
class OnSide:
    """The records of one side."""

    side: int

    def __call__(self, value: Any) -> Any:
        return value.get("s") == self.side


@dataclass(frozen=True)
class Renamed:
    """A side whose columns are called otherwise than those of the other side."""

    side: str
    key: tuple[str, ...]

    def __call__(self, value: Any) -> Any:
        return {n if n in self.key else f"{self.side}_{n}": cell for n, cell in value.items()}


@dataclass(frozen=True)
class Join:
    """`join` over all, an interval or a window; `join_asof`."""

    kind: str
    keys: tuple[str, ...]
    how: str
    select: str
    columns: tuple[str, str]

    @staticmethod
    def draw(dice: random.Random, shape: Shape) -> Join:
        settled(shape)
        if shape.raw.get("k") != ("k",):
            raise Unfit
        kinds = ["history", "interval", "tumbling", "hopping"]
        # Of two rows with one time the one that arrives last is the newest.
        kind = dice.choice([*kinds, "asof", "asof_within"] if shape.arrival else kinds)
        both = shape.raw.get("j") == ("j",) and dice.random() < 0.3
        keys = ("k", "j") if both else ("k",)
        how = dice.choice(("inner", "left") if "asof" in kind else ("inner", "left", "full"))
        select = dice.choice(("function", "mapping", "none") if shape.records else BY_NAME)
        return Join(kind, keys, how, select, (a_column(dice, shape), a_column(dice, shape)))

    def build(self, at: At, name: str) -> At:
        settled(at.shape)
        key, (a, b) = Key(self.keys), self.columns
        sides = self._sides(at, name) if at.shape.records else self._with_source(at, name)
        places = [key.keyed(replace(at, stream=stream)) for stream in sides]
        (left, shape), (right, _) = places
        selects: dict[str, Any] = {
            "function": Both(self.keys, a),
            "mapping": {
                **{column: f"left.{column}" for column in self.keys},
                "a": f"left.{a}", "b": f"right.{b}", "c": "right.n",
            },
            "none": None,
        }  # fmt: skip
        options: dict[str, Any] = {"how": self.how, "select": selects[self.select], "errors": DEAD}
        if self.kind in ("asof", "asof_within"):
            within = "6us" if self.kind == "asof_within" else None
            made = left.join_asof(right, within=within, **options)
        else:
            made = left.join(right, **KINDS[self.kind], **options)
        columns = ("l_v", "r_v", "r_n") if self.select == "none" else ("a", "b", "c")
        # Rows of the right side alone have no key of the left: under that null all keys meet.
        is_keyless = self.how == "full" and self.select == "mapping"
        shape = replace(
            shape, columns=columns, raw={} if is_keyless else key.raw(shape),
            records=False, arrival=False,
            windowed=self.kind in ("tumbling", "hopping") and self.select != "none",
        )  # fmt: skip
        return at.settle(made, shape, name)

    def _sides(self, at: At, name: str) -> list[Any]:
        if "asof" in self.kind and not at.shape.arrival:
            raise Unfit
        sides: list[Any] = []
        for i, side in enumerate(("left", "right")):
            stream = at.stream.filter(OnSide(i), errors=DEAD).named(f"{name}.{side}")
            if self.select == "none":
                renamed = Renamed("lr"[i], self.keys)
                stream = stream.map(renamed, errors=DEAD).named(f"{name}.{side}.renamed")
            sides.append(stream)
        return sides

    def _with_source(self, at: At, name: str) -> list[Any]:
        if "asof" in self.kind or self.select not in BY_NAME:
            raise Unfit
        if any(at.shape.raw.get(column) != (column,) for column in self.keys):
            raise Unfit
        records = at.wiring.source.filter(OnSide(1), errors=DEAD).named(f"{name}.right")
        return [at.stream, records]


KINDS: dict[str, dict[str, Any]] = {
    "history": {},
    "interval": {"within": interval("-3us", "5us")},
    "tumbling": {"window": tumbling("10us")},
    "hopping": {"window": hopping("8us", every="4us"), "grace": "2us"},
}
