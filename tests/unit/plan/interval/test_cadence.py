"""When a checkpoint is due, what the ledger knows of it, and what is refused up front (M3, M7)."""

import pytest

from headrace.errors import InvalidPipeline
from headrace.plan.interval.cadence import Cadence, Due, due
from headrace.plan.interval.refusals import refuse_interval
from headrace.plan.interval.state import CommitInterval, IntervalState
from headrace.plan.options import check_options, checkpoint_every

WRITTEN = CommitInterval(written=True)


def after(*said: CommitInterval | None) -> IntervalState:
    """The state after commits 1, 2, ... that say this."""
    state = IntervalState()
    for epoch, each in enumerate(said, 1):
        state = state.committed(epoch, each)
    return state


def test_a_pipeline_without_an_interval_is_durable_with_every_commit():
    state = after(None, None, None)
    assert state.is_durable and state.durable(3) == 3
    assert due(Cadence(1), state, 3, elapsed_s=1e9) is None


def test_what_is_written_is_durable_up_to_the_checkpoint():
    state = after(None, WRITTEN, WRITTEN)
    assert not state.is_durable
    assert state.durable(3) == 1, "epoch 1 was durable when epoch 2 was only written"
    kept = state.committed(4, CommitInterval(written=True, checkpoint=3))
    assert kept.durable(4) == 3 and (kept.taken, kept.span) == (1, 2)
    assert kept.kept(CommitInterval(checkpoint=4)).is_durable


def test_an_epoch_whose_changes_all_ride_needs_no_checkpoint():
    state = after(CommitInterval(), CommitInterval())
    assert state.is_durable
    assert due(Cadence(2), state, 2, elapsed_s=1e9) is None


def test_a_checkpoint_is_due_every_n_epochs():
    state = after(WRITTEN, WRITTEN, WRITTEN)
    assert due(Cadence(4), state, 3, elapsed_s=1e9) is None
    assert due(Cadence(3), state, 3, elapsed_s=0.0) == Due(late=False)


def test_a_checkpoint_that_had_to_wait_for_the_one_before_it_is_late():
    state = after(WRITTEN, WRITTEN, WRITTEN)
    assert due(Cadence(2), state, 3, elapsed_s=0.0) == Due(late=True)
    kept = state.committed(4, CommitInterval(written=True, checkpoint=3, late=True))
    assert kept.late == 1 and due(Cadence(2), kept, 4, elapsed_s=0.0) is None
    assert due(Cadence(2), kept, 5, elapsed_s=0.0) == Due(late=False), "the interval is back"


def test_a_checkpoint_is_due_after_some_seconds():
    state = after(WRITTEN)
    ten = Cadence(None, 10.0)
    assert due(ten, state, 1, elapsed_s=9.9) is None
    assert due(ten, state, 1, elapsed_s=10.0, busy_at_s=3.0) == Due(late=False)
    assert due(ten, state, 1, elapsed_s=12.5, busy_at_s=12.4) == Due(late=True)


def test_a_hook_asks_for_a_checkpoint_of_its_epoch():
    state = after(WRITTEN, CommitInterval(written=True, asked=True))
    assert due(Cadence(100), state, 2, elapsed_s=0.0) == Due(late=False)
    assert due(Cadence(None, 60.0), state, 2, elapsed_s=0.0) == Due(late=False)
    kept = state.committed(3, CommitInterval(written=True, checkpoint=2))
    assert due(Cadence(100), kept, 3, elapsed_s=0.0) is None, "it was asked for once"
    early = state.committed(3, CommitInterval(written=True, checkpoint=1))
    assert due(Cadence(100), early, 3, elapsed_s=0.0) is not None, "that one was of epoch 1"


def test_fragments_are_spread_over_half_of_what_a_checkpoint_covers():
    def found(epochs: int, cadence: Cadence | None = None, **ends: bool) -> Due | None:
        state = after(*[WRITTEN] * (epochs - 1), CommitInterval(written=True, **ends))
        return due(cadence or Cadence(epochs), state, epochs, elapsed_s=1.0)

    assert found(4) == Due(late=False, over=2)
    assert found(16) == found(200) == Due(late=False, over=8), "rings stay as they are meanwhile"
    assert found(12, Cadence(None, 1.0)) == Due(late=False, over=6)
    assert found(16, asked=True) == Due(late=False), "somebody waits for it"
    assert found(16, Cadence(15)) == Due(late=True), "there is no time to lose"


@pytest.mark.parametrize(
    ("fragments", "over", "begun"),
    [
        (2, 1, [2, 2]),
        (2, 8, [1, 1, 1, 1, 2, 2, 2, 2, 2]),
        (5, 2, [3, 5, 5]),
        (64, 8, [8, 16, 24, 32, 40, 48, 56, 64, 64]),
        (0, 8, [0, 0]),
    ],
)
def test_so_many_fragments_may_be_begun_by_an_epoch(fragments, over, begun):
    checkpoint = Due(late=False, over=over)
    assert [checkpoint.begun(fragments, passed) for passed in range(len(begun))] == begun


def test_no_checkpoint_waits_for_more_than_256_epochs():
    state = IntervalState(checkpoint=1, written=257)
    assert due(Cadence(None, 3600.0), state, 256, elapsed_s=1.0) is None
    assert due(Cadence(None, 3600.0), state, 257, elapsed_s=1.0) == Due(late=False, over=8)
    later = IntervalState(checkpoint=1, written=258)
    assert due(Cadence(None, 3600.0), later, 258, elapsed_s=1.0) == Due(late=True)


def test_the_longest_interval_is_not_late_by_itself():
    """Late means that the store was slow, and `headrace status` says so."""
    state = IntervalState(checkpoint=1, written=257)
    assert due(Cadence(256), state, 256, elapsed_s=1.0) is None
    assert due(Cadence(256), state, 257, elapsed_s=1.0) == Due(late=False, over=8)
    assert due(Cadence(256), state, 258, elapsed_s=1.0) == Due(late=True)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (1, Cadence(1)),
        (7, Cadence(7)),
        ("7", Cadence(7)),
        ("10s", Cadence(None, 10.0)),
        ("500ms", Cadence(None, 0.5)),
    ],
)
def test_an_interval_is_a_number_of_epochs_or_a_time(given, found):
    assert checkpoint_every(given) == found
    assert check_options({"checkpoint_every": given}).checkpoint_every == found


@pytest.mark.parametrize(
    "given", [0, -1, True, 1.5, None, "0", "0s", "2h", 257, "often", "", "\u00b2", "9" * 5000]
)
def test_other_intervals_are_refused(given):
    with pytest.raises(InvalidPipeline, match="checkpoint_every="):
        checkpoint_every(given)


def test_deliver_is_committed_or_durable():
    assert check_options({"deliver": "durable"}).deliver == "durable"
    with pytest.raises(InvalidPipeline, match='deliver= is "committed" or "durable"'):
        check_options({"deliver": "soon"})


def test_an_interval_is_refused_where_lost_state_could_not_be_made_again():
    fits = {"location": "/state", "in_reach": True, "once_only": {}}
    refuse_interval(Cadence(5), **fits)
    with pytest.raises(InvalidPipeline, match=r"stream 'clicks' \(a socket\) cannot"):
        refuse_interval(Cadence(5), **{**fits, "once_only": {"clicks": "a socket"}})
    with pytest.raises(InvalidPipeline, match=r"URL \(s3://bucket/x\)"):
        refuse_interval(Cadence(None, 10.0), location="s3://bucket/x", in_reach=False, once_only={})
    refuse_interval(Cadence(1), location="s3://b", in_reach=False, once_only={"clicks": "a socket"})
