"""Makes a case that failed smaller, as long as it fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.property.mixed.cases import Case, Failure, Item, check


def shrunk(case: Case, failure: Failure, seconds: float = 20.0) -> tuple[Case, Failure]:
    """The smallest case found in the time, and what it shows."""
    until = time.monotonic() + seconds
    again = True
    while again:
        again = False
        for smaller in candidates(case):
            if time.monotonic() > until:
                return case, failure
            found = check(smaller)
            if found is not None and found.phase == failure.phase:
                case, failure, again = smaller, found, True
                break
    return case, failure


def candidates(case: Case) -> Iterator[Case]:
    """Smaller cases, the much smaller ones first."""
    for i in range(len(case.chains)):
        if len(case.chains) > 1:
            yield replace(case, chains=case.chains[:i] + case.chains[i + 1 :])
    for i, chain in enumerate(case.chains):
        for j in reversed(range(len(chain))):
            less = (*case.chains[:i], chain[:j] + chain[j + 1 :], *case.chains[i + 1 :])
            yield replace(case, chains=less)
    size = len(case.items)
    step = size // 2
    while step:
        for start in range(0, size, step):
            yield replace(case, items=case.items[:start] + case.items[start + step :])
        step //= 2
    for slots in range(1, case.slots):
        yield replace(case, slots=slots)
    if case.twice:
        yield replace(case, twice=False)
    for i, item in enumerate(case.items):
        for simpler in simpler_items(item):
            yield replace(case, items=(*case.items[:i], simpler, *case.items[i + 1 :]))


def simpler_items(item: Item) -> Iterator[Item]:
    """The same record with less around it, or in it."""
    if item.crash:
        yield replace(item, crash=None)
    if item.cut:
        yield replace(item, cut=False)
    if not isinstance(item.record, dict):
        return
    for column in item.record:
        if column not in ("t", "n"):
            yield replace(item, record={n: c for n, c in item.record.items() if n != column})
    for column, cell in item.record.items():
        for simpler in simpler_cells(cell):
            yield replace(item, record={**item.record, column: simpler})


def simpler_cells(cell: Any) -> Iterator[Any]:
    """Smaller values, of the same kind first."""
    if isinstance(cell, list) and cell:
        yield from (cell[:i] + cell[i + 1 :] for i in range(len(cell)))
        yield from cell
    elif isinstance(cell, dict) and cell:
        yield from ({n: c for n, c in cell.items() if n != name} for name in cell)
        yield from cell.values()
    elif type(cell) is int and cell not in (0, 1):
        yield from (0, 1)
    elif isinstance(cell, str) and cell not in ("", "a"):
        yield "a"


def told(case: Case, failure: Failure) -> str:
    """A failed case for people: what to look at, and how to repeat it."""
    lines = [f"seed {case.seed}: {failure.phase}", *failure.lines[:12]]
    lines += [f"chain {i}: {' -> '.join(map(repr, chain))}" for i, chain in enumerate(case.chains)]
    lines += [f"slots={case.slots} twice={case.twice}, records:"]
    for item in case.items:
        marks = (" (cut)" if item.cut else "") + (f" (crash {item.crash})" if item.crash else "")
        lines.append(f"  {item.record!r}{marks}")
    lines.append(
        f"repeat: HEADRACE_MIXED_FIRST={case.seed} HEADRACE_MIXED_CASES=1 "
        "python -m pytest tests/property/mixed -q"
    )
    return "\n".join(lines)
