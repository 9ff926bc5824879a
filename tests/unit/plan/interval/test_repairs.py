"""Which units run again to make lost deltas again (M5)."""

import pytest

from headrace.plan.interval.repairs import NotMadeAgain, repairs_of

EPOCHS = (5, 6, 7)
A, B = ("A/0", "A/1"), ("B/0", "B/1")
"""in -> A -> B, two slots each; every slot has a delta per epoch."""
MADE_BY = {f"{label}@{e}": (e, label) for e in EPOCHS for label in (*A, *B)}


def feeds(epoch: int, label: str) -> tuple[str, ...]:
    return {"A": (f"in#{epoch}",), "B": A}.get(label[0], ())


def base(epoch: int, label: str) -> list[str]:
    return [f"{label}@{e}" for e in EPOCHS if e < epoch and label in (*A, *B)]


def todo(*lost: str, also: tuple[str, ...] = ()) -> list[tuple[int, tuple[str, ...]]]:
    """The repairs where a task misses `lost`, and `also` cannot be reached either."""
    gone = {*lost, *also}
    return repairs_of(
        lost, MADE_BY, feeds=feeds, base=base, is_reachable=lambda segment: segment not in gone
    )


def test_a_unit_runs_again_with_the_units_that_feed_it():
    assert todo("A/1@6") == [(6, ("A/1", "in#6"))]
    assert todo("B/0@7") == [(7, ("A/0", "A/1", "B/0", "in#7"))]


def test_epochs_run_again_in_their_order_and_only_where_something_is_lost():
    assert [epoch for epoch, _ in todo("A/0@7", "A/0@5")] == [5, 7]


def test_the_base_of_a_unit_that_feeds_is_made_again_first():
    assert todo("B/1@7", also=("A/0@5",)) == [
        (5, ("A/0", "in#5")),
        (7, ("A/0", "A/1", "B/1", "in#7")),
    ]


def test_what_is_lost_and_not_needed_is_left():
    assert todo("A/0@6", also=("A/1@5", "A/0@7", "B/0@5")) == [(6, ("A/0", "in#6"))]


def test_a_chain_of_losses_is_followed_back_to_the_checkpoint():
    found = todo("B/0@7", also=("B/0@6", "A/1@5"))
    assert found == [
        (5, ("A/1", "in#5")),
        (6, ("A/0", "A/1", "B/0", "in#6")),
        (7, ("A/0", "A/1", "B/0", "in#7")),
    ]


def test_what_no_unit_since_the_checkpoint_has_made_is_damage():
    with pytest.raises(NotMadeAgain) as damage:
        todo("A/0@7", "old")
    assert damage.value.segment == "old"


def test_nothing_lost_is_nothing_to_do():
    assert todo() == []
