"""`state=`: what can be chosen, what is shown of it, and what is refused."""

import pytest

from headrace.errors import IncompatibleState, InvalidPipeline
from headrace.plan.ledger import Ledger
from headrace.plan.state.applied import AppliedState, StoreMark, unapplied_over
from headrace.plan.state.choice import (
    StateChoice,
    check_state,
    refuse_other_state,
    refuse_without_history,
)

SECRET = "redis://somebody:s3cret@host:6379/0?password=s3cret&timeout=5s"


@pytest.mark.parametrize("given", ["segments", "files", "log", "redis://h:1/0", "hbase://h:1/t"])
def test_every_store_can_be_chosen(given: str) -> None:
    assert check_state(given).shown == given


@pytest.mark.parametrize("given", ["", "file", "redis", "s3://bucket", None, 7, "log://x"])
def test_another_one_is_refused_with_those_that_there_are(given: object) -> None:
    with pytest.raises(InvalidPipeline, match="'segments', 'files', 'log'"):
        check_state(given)


def test_a_password_is_never_shown() -> None:
    choice = check_state(SECRET)
    assert choice.shown == "redis://host:6379/0?timeout=5s" == choice.planned
    assert "s3cret" not in repr(choice) and choice.given == SECRET
    with pytest.raises(InvalidPipeline) as refused:
        check_state("rediss3://a:s3cret@host")
    assert "s3cret" not in str(refused.value)


def test_segments_are_planned_as_nothing() -> None:
    assert check_state("segments").planned == "" and not StateChoice().copies


def test_a_checkpoint_stays_with_its_store() -> None:
    ledger = Ledger(epoch=3, applied=AppliedState("files"))
    refuse_other_state(ledger, StateChoice("files"), "here")
    with pytest.raises(IncompatibleState, match="here keeps its state in 'files'"):
        refuse_other_state(ledger, StateChoice("log"), "here")
    refuse_other_state(Ledger(), StateChoice("log"), "here")
    with pytest.raises(IncompatibleState, match="keeps its state in 'segments'"):
        refuse_other_state(Ledger(epoch=1), StateChoice("log"), "here")


def test_options_that_only_say_how_to_ask_may_change() -> None:
    ledger = Ledger(epoch=3, applied=AppliedState("redis://h:1/0?durability=everysec"))
    for given in ("redis://:pw@h:1/0", "redis://h:1/0?timeout=9s&durability=always"):
        refuse_other_state(ledger, StateChoice(given), "here")
    hbase = Ledger(epoch=3, applied=AppliedState("hbase://h:1/t?timeout=1s"))
    refuse_other_state(hbase, StateChoice("hbase://h:1/t"), "here")
    for has, given in ((ledger, "redis://h:1/1"), (hbase, "hbase://h:1/t?durability=flush")):
        with pytest.raises(IncompatibleState, match="here keeps its state in"):
            refuse_other_state(has, StateChoice(given), "here")


def test_what_needs_history_is_refused_by_name() -> None:
    with pytest.raises(IncompatibleState, match="a replay of epoch 3 .*state='files'"):
        refuse_without_history(Ledger(applied=AppliedState("files")), "a replay of epoch 3")
    refuse_without_history(Ledger(), "a replay")


def test_the_mark_of_the_log_is_never_lowered() -> None:
    applied = AppliedState("log").marked(StoreMark(5, "a"))
    assert applied.marked(StoreMark(3, "b")) is applied and applied.marked(None) is applied
    assert applied.marked(StoreMark(5, "b")) == AppliedState("log", 5, "b")


def test_a_renamed_computation_keeps_its_cells() -> None:
    applied = AppliedState("log").renamed("A", "B").renamed("B", "C")
    assert {applied.named(name) for name in "ABC"} == {"A"}
    assert applied.is_taken("A", {"C"}) and not applied.is_taken("D", {"C"})


def test_dropped_state_does_not_come_back_under_the_same_name() -> None:
    applied = AppliedState("log").forgotten("A", 7)
    assert applied.named("A") == "A@7" and applied.named("B") == "B"
    assert AppliedState().forgotten("A", 7) == AppliedState()


def test_an_epoch_waits_when_too_many_are_unapplied() -> None:
    assert not unapplied_over(8, 4, 4) and unapplied_over(9, 4, 4)


def test_what_was_dropped_is_told_by_its_epoch_and_not_by_a_name_like_it() -> None:
    dropped = AppliedState("log").forgotten("A", 7)
    assert dropped.is_forgotten("A", 7) and not dropped.is_forgotten("A", 8)
    assert not dropped.is_forgotten("B", 7)
    renamed = dropped.renamed("A", "B")
    assert renamed.is_forgotten("A", 7) and not renamed.is_forgotten("B", 7)
    likely = AppliedState("log").renamed("A@7", "A")
    assert likely.named("A") == "A@7" and not likely.is_forgotten("A", 3)
    assert not AppliedState("log").is_forgotten("A@7", 3)
    again = dropped.forgotten("A", 7)
    assert again.named("A") != dropped.named("A") and again.is_forgotten("A", 7)
    assert again.forgotten("A", 9).named("A") == "A@9"


def test_an_import_has_a_name_of_its_own_and_before_the_first_epoch_an_id() -> None:
    assert AppliedState("redis://h").imported("A", 0, "x") == AppliedState("redis://h", id="x")
    imported = AppliedState("redis://h", 1, id="x").forgotten("A", 1).imported("A", 1, "y")
    assert imported.named("A") == "A~y" and imported.id == "x"
    assert not imported.is_forgotten("A", 2)
    assert imported.forgotten("A", 1).is_forgotten("A", 1)
    assert imported.renamed("A", "B").is_taken("A", {"B"})
