"""Hit rates: from the notes of slots, through a commit, to the ledger."""

from headrace.plan.elastic.figures import CacheFigures, LoadState
from headrace.plan.elastic.load import SlotNote
from headrace.plan.elastic.meter import EPOCHS_KEPT, LoadMeter
from headrace.plan.elastic.settings import Elasticity


def note(epoch: int, slot: int, *objects: int) -> SlotNote:
    return SlotNote(epoch, f"C/{slot}", 1000, objects=objects)


def test_notes_are_added_up_once_and_reported_once() -> None:
    meter = LoadMeter()
    meter.planned(1, 1_000)
    meter.heard([note(1, 0, 3, 1, 0, 0), note(1, 1, 5, 1, 2, 1), note(1, 0, 99, 99, 99, 99)])
    meter.heard([note(2, 0, 50, 0, 0, 0)])  # of no plan of this leader
    meter.planned(2, 2_000)
    figures = meter.report(2, LoadState(), {}, {"C": [0, 1]}, {}, Elasticity())
    assert figures.objects == {"C": CacheFigures(8, 2, 2, 1)}
    assert meter.report(2, LoadState(), {}, {"C": [0, 1]}, {}, Elasticity()).objects == {}
    state = LoadState().reported(figures, ["C"])
    assert state.objects["C"].hit_rate == 0.8 and state.objects["C"].prefetched_rate == 0.5


def test_older_reports_count_less_and_prefetched_objects_stay_counted() -> None:
    then = CacheFigures(100, 0, 10, 4).then(CacheFigures(0, 50, 0, 1))
    assert then == CacheFigures(50, 50, 10, 5)
    assert CacheFigures().hit_rate is None and CacheFigures().prefetched_rate is None


def test_what_is_known_of_a_computation_moves_with_its_name() -> None:
    state = LoadState(objects={"C": CacheFigures(1, 1)})
    assert state.renamed("C", "D").objects == {"D": CacheFigures(1, 1)}


def test_notes_that_no_report_takes_are_dropped_with_their_epochs() -> None:
    meter = LoadMeter()
    for epoch in range(1, 500):
        meter.planned(epoch, epoch * 1_000)
        meter.heard([note(epoch, slot, 1, 0, 0, 0) for slot in (0, 1)])
    kept = [*meter._busy["C"].values(), *meter._records["C"].values()]
    assert [len(epochs) for epochs in kept] == [EPOCHS_KEPT + 1] * 4
    assert all(set(epochs) == set(meter._walls) for epochs in kept)
    for epoch in range(500, 700):  # a slot that is gone leaves nothing
        meter.planned(epoch, epoch * 1_000)
        meter.heard([note(epoch, 0)])
    assert set(meter._busy["C"]) == set(meter._records["C"]) == {0}
