"""What is known of a stream while a random pipeline is built, and what of it is compared.

Answers are documented not to depend on the cut, the slots or the neighbours, with exceptions. Each
exception is a property of a stream here, so that a step can be drawn only where it is defined, and
rows are compared only as far as they are:

- `arrival`: whether records reach a key in the order of the one split. Behind a union, a join or
  a keyed step they come of several inputs or slots, whose order depends on the cut ("the order in
  which records of different splits or inputs reach a key"). Steps that go by arrival are drawn
  only before.
- `last_by`: rows that replace each other (`emit="changes"`, `every(...)`, `count()` without a
  window, `top(id=)`): how often they come depends on the epochs. The last ones of each key and
  window are compared, and dead letters of what is done with the others are not.
- `local`: whether a row comes of the records of one key alone. Behind `key_by()`, and behind a key
  that other steps made, records of all keys meet: there is no telling what is a neighbour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.property.mixed.values import LATENESS_US

from headrace import Pipeline, sources, to
from headrace.pipeline.fluent.stream import Stream

DEAD = to("dead")
SOURCE = "in"


class Unfit(Exception):
    """A step does not go behind the ones before it: draw another, or do not shrink that way."""


@dataclass(frozen=True)
class Shape:
    """What steps behind a stream may rely on."""

    columns: tuple[str, ...] = ("v", "w", "x")
    """Columns of values of every kind."""
    raw: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {column: (column,) for column in ("n", "k", "j", "v", "w", "x")}
    )
    """Columns that can be keyed by locally, and the columns of the source that they come of."""
    records: bool = True
    """These are records of the source, changed perhaps: with `n`, `s` and `t`."""
    windowed: bool = False
    arrival: bool = True
    last_by: tuple[str, ...] | None = None
    stamped: bool = True
    """Whether the times of the last rows are defined, too. `top(id=)` sends its whole list with
    every epoch that changes it, stamped with that epoch's newest record."""
    in_time: bool = True
    """Whether of rows that replace each other the last one has the newest time: `top(id=)` goes
    by that. Those of a `reduce` by arrival have the times of their records."""
    local: bool = True

    @property
    def all_columns(self) -> tuple[str, ...]:
        """The names that a step may use."""
        return tuple(dict.fromkeys([*self.columns, *self.raw]))

    def changed(self, *columns: str) -> Shape:
        """The same after a step that changes some columns."""
        raw = {name: of for name, of in self.raw.items() if name not in columns}
        return replace(self, raw=raw)


@dataclass
class Watched:
    """A stream whose rows are compared."""

    stream: str
    shape: Shape


class Wiring:
    """A pipeline while it is built."""

    def __init__(self) -> None:
        self.pipeline = Pipeline("mixed")
        source = sources.memory([], timestamp="t", lateness=f"{LATENESS_US}us")
        self.source = self.pipeline.read(SOURCE, source, errors=DEAD)
        self.watched: list[Watched] = []
        self.links: set[tuple[str, ...]] = set()
        """Columns of the source by which records meet somewhere."""
        self.unsettled: set[str] = set()
        """Computations whose dead letters depend on how often rows were replaced."""
        self.shared: set[str] = set()
        """Computations in which records of all keys meet."""

    def start(self) -> At:
        """The source's stream."""
        return At(self, self.source, Shape())


@dataclass(frozen=True)
class At:
    """A place in the pipeline: the next step goes there."""

    wiring: Wiring
    stream: Stream[Any]
    shape: Shape

    def settle(self, made: Stream[Any], shape: Shape, name: str) -> At:
        """The place behind a step."""
        if made._made_by:
            made.named(name)
        self.wiring.watched.append(Watched(made.name, shape))
        return At(self.wiring, made, shape)


def note_letters(before: set[str], at: At, after: At) -> None:
    """Which of the computations that a step has added have letters that can be compared."""
    added = set(at.wiring.pipeline.catalog.nodes) - before
    if at.shape.last_by is not None:
        at.wiring.unsettled |= added
    if not after.shape.local:
        at.wiring.shared |= added
