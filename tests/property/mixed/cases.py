"""A case: records, chains of steps over them, and how the input is cut, crashed and parted.

All of it is data, made from a seed, so that a case can be repeated, made smaller and printed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from tests.property.mixed.compare import Outcome, canonical, differences
from tests.property.mixed.joins import Join
from tests.property.mixed.keyed_steps import KEYED
from tests.property.mixed.shapes import SOURCE, At, Unfit, Wiring, note_letters
from tests.property.mixed.stateless_steps import STATELESS
from tests.property.mixed.values import records

from headrace import failpoints
from headrace.errors import InvalidPipeline
from headrace.testing import Harness

STEPS: tuple[Any, ...] = (*STATELESS, *KEYED, *KEYED, Join, Join)
"""What is drawn from; some kinds more often, as they hold more."""


@dataclass(frozen=True)
class Item:
    """A record, and what happens right before it where the input is cut."""

    record: Any
    cut: bool = False
    crash: str | None = None


@dataclass(frozen=True)
class Case:
    """See above."""

    seed: int
    items: tuple[Item, ...]
    chains: tuple[tuple[Any, ...], ...]
    slots: int
    twice: bool
    """Each epoch runs on a warm and on a cold cache, and both must agree."""
    alone: int
    """Whose records are also run without those of the others."""

    def wired(self) -> Wiring:
        """The pipeline; raises Unfit where its steps do not go together."""
        wiring = Wiring()
        for i, chain in enumerate(self.chains):
            at = wiring.start()
            for j, step in enumerate(chain):
                at = put(step, at, f"{'abc'[i]}{j}")
        return wiring


@dataclass(frozen=True)
class Failure:
    """What a case has shown."""

    phase: str
    lines: tuple[str, ...]


def put(step: Any, at: At, name: str) -> At:
    """One more step."""
    before = set(at.wiring.pipeline.catalog.nodes)
    try:
        after: At = step.build(at, name)
    except InvalidPipeline as error:
        raise Unfit(str(error)) from error
    note_letters(before, at, after)
    return after


def draw(seed: int) -> Case:
    """The case of a seed. Each kind of step begins a chain of every so many seeds."""
    dice = random.Random(f"mixed {seed}")
    wiring = Wiring()
    chains = []
    for i in range(dice.choice((1, 2))):
        at, chain = wiring.start(), []
        wanted = dice.choice((1, 2, 2, 3))
        for j in range(wanted):
            first = STEPS[seed % len(STEPS)] if (i, j) == (0, 0) else None
            drawn = _next(dice, at, f"{'abc'[i]}{j}", first)
            if drawn is None:
                break
            step, at = drawn
            chain.append(step)
        chains.append(tuple(chain))
    cutting = dice.choice((0.1, 0.3, 0.6, 1.0))
    items = []
    for record in records(dice):
        crash = dice.choice(failpoints.NAMES) if dice.random() < 0.1 else None
        items.append(Item(record, dice.random() < cutting, crash))
    return Case(
        seed, tuple(items), tuple(chains), slots=dice.choice((1, 2, 3, 5)),
        twice=dice.random() < 0.3, alone=dice.randrange(1000),
    )  # fmt: skip


def _next(dice: random.Random, at: At, name: str, first: Any) -> tuple[Any, At] | None:
    """A step that goes behind the others. One that fails while it is built leaves no trace."""
    for _ in range(20):
        kind = first or dice.choice(STEPS)
        try:
            step = kind.draw(dice, at.shape)
            return step, put(step, at, name)
        except Unfit:
            continue
    return None


def check(case: Case) -> Failure | None:
    """Runs a case in all ways; None where they agree."""
    try:
        wiring = case.wired()
    except Unfit as error:
        return Failure("build", (str(error),))
    everything = list(case.items)
    try:
        whole = run(case, everything, calm=True)
    except Exception as error:
        return Failure("one epoch raises", told(error))
    if whole.late:
        return Failure("late records", (f"{whole.late} records are late in one epoch",))
    try:
        cut = run(case, everything, calm=False)
    except Exception as error:
        return Failure("several epochs raise", told(error))
    if cut.late:
        return Failure("late records", (f"{cut.late} records are late when cut",))
    streams = {watched.stream for watched in wiring.watched}
    found = differences(whole.only(streams, wiring.unsettled), cut.only(streams, wiring.unsettled))
    if found:
        return Failure("the cut shows", tuple(found))
    return check_neighbours(case, wiring, whole)


def check_neighbours(case: Case, wiring: Wiring, whole: Outcome) -> Failure | None:
    """The rows of one key's records alone, and those of the others alone, are those of all."""
    groups = components([item.record for item in case.items], wiring.links)
    if len(groups) < 2:
        return None
    mine = set(groups[case.alone % len(groups)])
    parts = [
        [item for i, item in enumerate(case.items) if (i in mine) == own] for own in (True, False)
    ]
    try:
        alone, others = (run(case, part, calm=True) for part in parts)
    except Exception as error:
        return Failure("without its neighbours it raises", told(error))
    streams = {watched.stream for watched in wiring.watched if watched.shape.local}
    without = wiring.unsettled | wiring.shared
    found = differences(whole.only(streams, without), alone.and_of(others).only(streams, without))
    if not found:
        return None
    who = canonical([case.items[i].record for i in sorted(mine)])
    return Failure("neighbours show", (*found, f"alone: {who}"))


def run(case: Case, items: list[Item], *, calm: bool) -> Outcome:
    """One run: in one epoch and slot, or cut, with crashes, in several slots."""
    wiring = case.wired()
    slots, twice = (1, False) if calm else (case.slots, case.twice)
    with Harness(wiring.pipeline, slots=slots, twice=twice, picklable=False) as harness:
        batch: list[Any] = []
        for item in items:
            if not calm and (item.cut or item.crash) and batch:
                harness.send(SOURCE, *batch)
                batch = []
            if not calm and item.crash:
                harness.crash(item.crash)
            batch.append(item.record)
        harness.send(SOURCE, *batch)
        harness.end()
        return Outcome.of(harness, wiring)


def components(values: list[Any], links: set[tuple[str, ...]]) -> list[list[int]]:
    """Which records may meet: those that share a key of some step, directly or through others."""
    parents = list(range(len(values)))

    def root(i: int) -> int:
        while parents[i] != i:
            i = parents[i]
        return i

    for link in sorted(links):
        seen: dict[str, int] = {}
        for i, value in enumerate(values):
            if isinstance(value, dict):
                key = canonical([value.get(column) for column in link])
                parents[root(i)] = root(seen.setdefault(key, i))
    groups: dict[int, list[int]] = {}
    for i in range(len(values)):
        groups.setdefault(root(i), []).append(i)
    return list(groups.values())


def told(error: BaseException) -> tuple[str, ...]:
    """An exception in a few lines."""
    return (f"{type(error).__name__}: {error}"[:1200],)


def without_cuts(case: Case) -> Case:
    """The same case in one epoch."""
    return replace(case, items=tuple(Item(item.record) for item in case.items))
