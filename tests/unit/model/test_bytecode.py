"""What a class's code shows: whether it needs its records' values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headrace import Computation, Pipeline, UserCodeError, sources, state
from headrace.model.bytecode import leaves_value_alone
from headrace.testing import Harness


def counts(self: Any, record: Any, ctx: Any) -> None:
    self.count += 1


def times(self: Any, record: Any, ctx: Any) -> None:
    if not record.late and record.timestamp > self.newest:
        self.newest = record.timestamp
    ctx.produce((record.key, record.stream))


def reads(self: Any, record: Any, ctx: Any) -> None:
    self.total += record.value["n"]


def hands_on(self: Any, record: Any, ctx: Any) -> None:
    self.helper(record)


def keeps(self: Any, record: Any, ctx: Any) -> None:
    self.last = record


def renames(self: Any, record: Any, ctx: Any) -> None:
    mine = record
    self.total += mine.value


def hides(self: Any, record: Any, ctx: Any) -> None:
    self.total = (lambda: record.value)()


def looks_around(self: Any, record: Any, ctx: Any) -> None:
    self.total = locals()["record"].value


def takes_anything(*args: Any) -> None:
    pass


def asks_by_name(self: Any, record: Any, ctx: Any) -> None:
    self.total = getattr(record, "value")  # noqa: B009


@pytest.mark.parametrize("hook", [counts, times])
def test_a_hook_that_only_counts_or_looks_at_times_needs_no_values(
    hook: Callable[..., None],
) -> None:
    assert leaves_value_alone(hook)


@pytest.mark.parametrize(
    "hook",
    [reads, hands_on, keeps, renames, hides, looks_around, takes_anything, asks_by_name, print],
)
def test_a_hook_that_may_see_a_value_gets_it(hook: Callable[..., None]) -> None:
    assert not leaves_value_alone(hook)


class Fragile(Computation):
    """Fails at its third record without having looked at any."""

    seen: int = state(0)

    def process_record(self, record: Any, ctx: Any) -> None:
        self.seen += 1
        if self.seen == 3:
            raise RuntimeError("enough")


def test_the_error_of_a_hook_that_reads_no_values_names_the_record_all_the_same() -> None:
    p = Pipeline("fragile")
    p.read("letters", sources.memory([]))
    p.compute(Fragile, inputs={"letters": "to"})
    with Harness(p) as h:
        letters = [{"to": "a", "n": n} for n in range(4)]
        with pytest.raises(UserCodeError, match=r"record \{'to': 'a', 'n': 2\}"):
            h.send("letters", *letters)
            h.settle()
