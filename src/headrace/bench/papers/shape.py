"""Judges the shape of a curve: pure functions of measured numbers.

A row of `headrace bench paper` makes claims, each of which measured numbers can contradict. All
claims must hold for the shape to be the same. A number that was not measured contradicts its claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Number = float | int | None


@dataclass(frozen=True)
class ShapeClaim:
    """One thing that the numbers say, or contradict."""

    text: str
    holds: bool


@dataclass(frozen=True)
class ShapeVerdict:
    """Whether a shape is the same, and the claims that decide it."""

    claims: tuple[ShapeClaim, ...]

    @property
    def same_shape(self) -> bool:
        """Whether all claims hold. Without a claim nothing was judged, so nothing is the same."""
        return bool(self.claims) and all(claim.holds for claim in self.claims)

    @property
    def why(self) -> str:
        """The claims that decide: those that do not hold, or all of them."""
        wrong = [claim.text for claim in self.claims if not claim.holds]
        if wrong:
            return "not so: " + "; not so: ".join(wrong)
        return "; ".join(claim.text for claim in self.claims) or "nothing was judged"


@dataclass
class Judgement:
    """Collects claims about measured numbers."""

    claims: list[ShapeClaim] = field(default_factory=list)

    def claim(self, text: str, holds: bool) -> Judgement:
        """Any claim."""
        self.claims.append(ShapeClaim(text, bool(holds)))
        return self

    def at_most(self, what: str, measured: Number, limit: float) -> Judgement:
        """A number is at most `limit`."""
        holds = is_number(measured) and measured <= limit  # type: ignore[operator]
        return self.claim(f"{what} is {shown(measured)}, at most {shown(limit)}", holds)

    def at_least(self, what: str, measured: Number, limit: float) -> Judgement:
        """A number is at least `limit`."""
        holds = is_number(measured) and measured >= limit  # type: ignore[operator]
        return self.claim(f"{what} is {shown(measured)}, at least {shown(limit)}", holds)

    def below(self, one: str, first: Number, other: str, second: Number) -> Judgement:
        """One number is below another."""
        known = is_number(first) and is_number(second)
        text = f"{one} ({shown(first)}) is below {other} ({shown(second)})"
        return self.claim(text, known and first < second)  # type: ignore[operator]

    def flat(self, what: str, values: Sequence[Number], within: float) -> Judgement:
        """The largest value is at most `within` (0.2: 20 %) above the smallest."""
        known = [float(v) for v in values if is_number(v)]  # type: ignore[arg-type]
        whole = len(known) == len(values) >= 2
        holds = whole and max(known) <= min(known) * (1 + within)
        return self.claim(f"{what} is flat within {within:.0%}: {series(values)}", holds)

    def rises(self, what: str, values: Sequence[Number], *, times: float = 1.0) -> Judgement:
        """The last value is more than `times` the first, and the line through all rises."""
        text = f"{what} rises{_by(times)}: {series(values)}"
        return self.claim(text, _trend(values) > 0 and _ends(values) > times)

    def falls(self, what: str, values: Sequence[Number], *, times: float = 1.0) -> Judgement:
        """The first value is more than `times` the last, and the line through all falls."""
        text = f"{what} falls{_by(times)}: {series(values)}"
        ends = _ends(values)
        return self.claim(text, _trend(values) < 0 and 0 <= ends < 1 / times)

    def best_between(
        self, what: str, values: Mapping[float, Number], low: float, high: float
    ) -> Judgement:
        """The smallest value lies at an x between `low` and `high`."""
        known = {x: float(y) for x, y in values.items() if is_number(y)}  # type: ignore[arg-type]
        best = min(known, key=lambda x: known[x]) if known else None
        text = f"{what} is best at {shown(best)}, between {shown(low)} and {shown(high)}"
        return self.claim(text, best is not None and low <= best <= high)

    def verdict(self) -> ShapeVerdict:
        """All claims together."""
        return ShapeVerdict(tuple(self.claims))


def is_number(value: object) -> bool:
    """Whether this is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def shown(value: Number) -> str:
    """A number as text, short."""
    if not is_number(value):
        return "not measured"
    number = float(value)  # type: ignore[arg-type]
    if number == int(number) or abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}"


def series(values: Sequence[Number]) -> str:
    """Numbers as text, in their order."""
    return ", ".join(map(shown, values))


def _by(times: float) -> str:
    return f" by more than {shown(times)} x" if times > 1 else ""


def slope(xs: Sequence[float], ys: Sequence[Number]) -> float | None:
    """The exponent with which y grows with x: the line through the logarithms of both.

    None where there are fewer than two points with different x, or one of them has no logarithm.
    """
    if len(xs) != len(ys) or any(not is_number(v) or v <= 0 for v in (*xs, *ys)):  # type: ignore[operator]
        return None
    points = [(math.log(x), math.log(float(y))) for x, y in zip(xs, ys)]  # type: ignore[arg-type]
    return _line(points)


def _trend(values: Sequence[Number]) -> float:
    """The slope of the line through the values; 0 if one was not measured."""
    if any(not is_number(value) for value in values):
        return 0.0
    return _line([(float(at), float(v)) for at, v in enumerate(values)]) or 0.0  # type: ignore[arg-type]


def _line(points: Sequence[tuple[float, float]]) -> float | None:
    if len(points) < 2:
        return None
    x_mean = sum(x for x, _ in points) / len(points)
    y_mean = sum(y for _, y in points) / len(points)
    spread = sum((x - x_mean) ** 2 for x, _ in points)
    if not spread:
        return None
    return sum((x - x_mean) * (y - y_mean) for x, y in points) / spread


def _ends(values: Sequence[Number]) -> float:
    """The last value over the first; -1 if that cannot be said."""
    if len(values) < 2 or not is_number(values[0]) or not is_number(values[-1]):
        return -1.0
    first, last = float(values[0]), float(values[-1])  # type: ignore[arg-type]
    if first <= 0:
        return math.inf if last > 0 else -1.0
    return last / first
