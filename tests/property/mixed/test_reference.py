"""Windows over records of mixed kinds give what the documentation says, in the plainest words."""

import os
import random
from collections import Counter
from typing import Any

import pytest
from tests.property.mixed.cases import Case, Item, run
from tests.property.mixed.compare import Outcome, canonical
from tests.property.mixed.keyed_steps import WINDOW, Aggregated, Key, Windowed
from tests.property.mixed.reference import ANSWERS, answer, taken, windows
from tests.property.mixed.values import depth, records

from headrace.errors import InvalidRecord
from headrace.model.values.codec import NESTED_MAX
from headrace.model.values.keys import encode_key

CASES = int(os.environ.get("HEADRACE_MIXED_CASES", "300")) // 5
FIRST = int(os.environ.get("HEADRACE_MIXED_FIRST", "0"))
CASES_PER_TEST = 20


def drawn(seed: int) -> Case:
    dice = random.Random(f"reference {seed}")
    names = [*ANSWERS, "count", "fold_records"]
    what = tuple(
        Aggregated(dice.choice(names), dice.choice("vwx")) for _ in range(dice.choice((1, 2, 3)))
    )
    kind = dice.choice(("tumbling", "hopping", "sliding", "session", "whole"))
    size, grace = dice.choice((1, 4, 10, 40)), dice.choice((0, 3))
    step = Windowed(Key(("k",)), kind, size, "final", grace, False, what)
    items = tuple(
        Item(record, cut=dice.random() < 0.4) for record in records(dice) if readable(record)
    )
    return Case(seed, items, ((step,),), slots=dice.choice((1, 3)), twice=False, alone=0)


def readable(record: Any) -> bool:
    return (
        isinstance(record, dict)
        and type(record["t"]) is int
        and record["t"] >= 0
        and depth(record) <= NESTED_MAX
    )


def wanted(case: Case) -> Counter[str]:
    step: Windowed = case.chains[0][0]
    what: Any = step.what
    by_key: dict[str, list[dict[str, Any]]] = {}
    for item in case.items:
        record = item.record
        if usable(record.get("k")) and all(taken(one.name, one.column, record) for one in what):
            by_key.setdefault(canonical(record["k"]), []).append(record)
    rows: Counter[str] = Counter()
    for mine in by_key.values():
        for start, end, inside in windows(step.kind, step.size, mine):
            row = {"k": mine[0]["k"]} | (
                {} if step.kind == "whole" else dict(zip(WINDOW, (start, end)))
            )
            for i, one in enumerate(what):
                row["abc"[i]] = answer(one.name, one.column, inside)
            rows[canonical(row)] += 1
    return rows


def usable(key: Any) -> bool:
    try:
        encode_key(key)
    except InvalidRecord:
        return False
    return True


def rows_of(outcome: Outcome) -> Counter[str]:
    """The rows of the window, without their times."""
    return Counter(row.rpartition(" at ")[0] for row in outcome.rows["a0"].elements())


@pytest.mark.parametrize("first", range(FIRST, FIRST + CASES, CASES_PER_TEST))
def test_aggregates_of_mixed_kinds_are_those_of_the_documentation(first: int) -> None:
    for seed in range(first, min(first + CASES_PER_TEST, FIRST + CASES)):
        case = drawn(seed)
        rows = rows_of(run(case, list(case.items), calm=False))
        assert rows == wanted(case), f"seed {seed}: {case}"
