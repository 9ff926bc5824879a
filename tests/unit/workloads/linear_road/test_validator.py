"""The validator finds planted errors, and knows the rules by hand-made cases."""

import pytest
from tests.unit.workloads.linear_road.support import right_answers, small

from headrace.workloads.linear_road.validator import PositionReport, Rules


def answers():
    return [dict(row) for row in right_answers()]


def pick(rows, kind, where=lambda row: True):
    return next(i for i, row in enumerate(rows) if row["type"] == kind and where(row))


def test_a_missing_toll_is_found():
    rows = answers()
    gone = rows.pop(pick(rows, 0, lambda row: row["toll"] > 0))
    verdict = small().judge(rows)
    assert dict(verdict.missing) == {"toll": 1} and not verdict.right
    assert f"for ({gone['vid']}, {gone['time']}) is missing" in verdict.examples[0]


@pytest.mark.parametrize(("kind", "name"), [(0, "toll"), (1, "alert"), (2, "balance")])
def test_a_doubled_answer_is_found(kind, name):
    rows = answers()
    rows.append(dict(rows[pick(rows, kind)]))
    verdict = small().judge(rows)
    assert dict(verdict.doubled) == {name: 1} and not verdict.wrong and not verdict.missing


@pytest.mark.parametrize(
    ("kind", "column", "name"),
    [(2, "balance", "balance"), (2, "result_time", "balance"), (0, "toll", "toll"),
     (0, "lav", "toll"), (1, "seg", "alert"), (3, "toll", "expenditure")],
)  # fmt: skip
def test_a_wrong_answer_is_found(kind, column, name):
    rows = answers()
    rows[pick(rows, kind)][column] += 1
    assert dict(small().judge(rows).wrong) == {name: 1}


def test_an_answer_that_nobody_asked_for_is_found():
    rows = answers()
    rows[pick(rows, 0)]["vid"] = 10**9
    verdict = small().judge(rows)
    assert dict(verdict.unasked) == {"toll": 1} and dict(verdict.missing) == {"toll": 1}


def test_a_late_answer_is_found_and_is_right_nevertheless():
    rows = answers()
    rows[0]["took_s"], rows[1]["took_s"] = 5.01, 5.0
    verdict = small().judge(rows)
    assert verdict.right and not verdict.in_time and sum(verdict.late.values()) == 1


# The rules, by hand ---------------------------------------------------------


def drive(rules, second, *reports):
    return list(rules.second(second, [PositionReport(*report) for report in reports]))


def stop_two(rules, until=120):
    """Vehicles 1 and 2 stand in segment 50 from second 0 on: an accident in second 90."""
    for second in range(0, until, 30):
        drive(rules, second, (1, 0, 2, 0, 50, 264_100), (2, 0, 2, 0, 50, 264_100))


def test_an_accident_is_told_from_the_next_minute_on_in_five_segments():
    rules = Rules(0)
    stop_two(rules)
    drive(rules, 119, (10, 50, 1, 0, 48, 253_500))
    assert not rules.alerts, "the accident is of this minute"
    stop = [(1, 0, 2, 0, 50, 264_100), (2, 0, 2, 0, 50, 264_100)]
    entering = [(100 + seg, 50, 1, 0, seg, seg * 5280) for seg in range(44, 53)]
    drive(rules, 120, *stop, *entering)
    assert sorted(vid for vid, _ in rules.alerts) == [146, 147, 148, 149, 150]
    assert rules.alerts[146, 120] == (0, 50, 0)


def test_an_accident_is_over_as_soon_as_one_vehicle_moves():
    rules = Rules(0)
    stop_two(rules)
    moved = [(1, 0, 2, 0, 50, 264_100), (2, 9, 2, 0, 50, 264_200), (5, 50, 1, 0, 49, 258_800)]
    drive(rules, 120, *moved)
    assert not rules.alerts


def test_westward_vehicles_are_alerted_from_the_other_side():
    rules = Rules(3)
    for second in range(0, 121, 30):
        drive(rules, second, (1, 0, 2, 1, 50, 264_100), (2, 0, 2, 1, 50, 264_100))
    drive(rules, 121, (7, 50, 1, 1, 54, 286_000), (8, 50, 1, 1, 49, 259_000))
    assert dict(rules.alerts) == {(7, 121): (3, 50, 1)}


def test_a_toll_is_charged_on_leaving_for_another_segment_and_not_on_exit():
    rules = Rules(0)
    for second in (0, 30):
        drive(rules, second, *((vid, 10, 1, 0, 5, 27_000 + vid) for vid in range(51)))
    drive(rules, 60, (100, 10, 0, 0, 5, 27_000), (101, 10, 0, 0, 5, 27_000))
    assert rules.tolls[100, 60] == (10, 2)
    assert drive(rules, 90, (100, 10, 4, 0, 6, 32_000), (101, 10, 4, 0, 5, 28_000)) == [(100, 2)]
    assert (100, 90) not in rules.tolls, "the exit lane is told nothing"


def test_there_is_no_toll_where_traffic_is_fast_or_light():
    fast, light = Rules(0), Rules(0)
    for second in (0, 30):
        drive(fast, second, *((vid, 40, 1, 0, 5, 27_000 + vid) for vid in range(60)))
        drive(light, second, *((vid, 10, 1, 0, 5, 27_000 + vid) for vid in range(50)))
    for rules, lav in ((fast, 40), (light, 10)):
        drive(rules, 60, (100, 10, 0, 0, 5, 27_000))
        assert rules.tolls[100, 60] == (lav, 0)
