"""The validator finds planted errors, and knows the rules by hand-made cases."""

import pyarrow as pa
import pytest
from tests.unit.workloads.linear_road.support import right_answers, small

from headrace.workloads.linear_road.answers import ANSWER
from headrace.workloads.linear_road.given import TOOK, given_answers
from headrace.workloads.linear_road.validator import (
    PositionReport,
    RoadInput,
    RoadRequest,
    Rules,
    validate,
)


def answers():
    return [dict(row) for row in right_answers()]


def pick(rows, kind, where=lambda row: True):
    return next(i for i, row in enumerate(rows) if row["type"] == kind and where(row))


def test_a_missing_toll_is_found():
    rows = answers()
    gone = rows.pop(pick(rows, 0, lambda row: row["toll"] > 0))
    verdict = small().judge(rows)
    assert dict(verdict.missing) == {"toll": 1} and not verdict.right
    assert f"for ({gone['vid']}, {gone['time']}, {gone['dir']}) is missing" in verdict.examples[0]


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


def account(time, vid, qid, kind=2, balance=0, toll=None):
    """An answer to a request, of a vehicle that has paid nothing."""
    row = dict.fromkeys(ANSWER.names) | {"type": kind, "time": time, "vid": vid, "qid": qid}
    if kind == 2:
        return {**row, "result_time": 0, "balance": balance, TOOK: None}
    return {**row, "toll": toll, TOOK: None}


def repeated():
    """Requests whose ids are not their own: of another vehicle, at another time, of another day."""
    requests = [RoadRequest(31, 1, 7), RoadRequest(31, 2, 7), RoadRequest(32, 1, 7)]
    requests += [
        RoadRequest(33, 2, 8, 3, 0),
        RoadRequest(33, 2, 8, 3, 0),
        RoadRequest(33, 2, 8, 4, 0),
    ]
    return RoadInput(0, lambda xway: [], requests, {(2, 3, 0): 50})


def judged(rows):
    schema = ANSWER.append(pa.field(TOOK, pa.float64()))
    return validate(repeated(), given_answers(pa.Table.from_pylist(rows, schema=schema)))


def test_requests_may_repeat_their_ids():
    rows = [account(31, 1, 7), account(31, 2, 7), account(32, 1, 7)]
    rows += [account(33, 2, 8, 3, toll=toll) for toll in (50, 0, 50)]
    verdict = judged(rows)
    assert verdict.right, verdict.examples
    assert dict(verdict.checked) == {"balance": 3, "expenditure": 3}
    more = judged([*rows, account(31, 2, 7)])
    assert dict(more.doubled) == {"balance": 1} and not more.wrong and not more.missing
    fewer = judged([*rows[:3], *rows[4:]])
    assert dict(fewer.missing) == {"expenditure": 1} and not fewer.wrong
    other = judged([*rows[:5], account(33, 2, 8, 3, toll=0)])
    assert dict(other.wrong) == {"expenditure": 1} and "should be (50,)" in other.examples[0]
    unasked = judged([*rows, account(32, 2, 7)])
    assert dict(unasked.unasked) == {"balance": 1}


def test_an_answer_that_nobody_asked_for_is_found():
    rows = answers()
    rows[pick(rows, 0)]["vid"] = 10**9
    verdict = small().judge(rows)
    assert dict(verdict.unasked) == {"toll": 1} and dict(verdict.missing) == {"toll": 1}


@pytest.mark.parametrize("stray", [{"xway": 9}, {"xway": None}, {"type": 7}, {"xway": -1}])
def test_an_answer_of_no_kind_or_of_another_road_is_found(stray):
    rows = answers()
    rows.append(rows[pick(rows, 0)] | stray)
    verdict = small().judge(rows)
    assert dict(verdict.unasked) == {"other": 1} and not verdict.right
    assert not verdict.missing and not verdict.doubled


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
    assert sorted(vid for vid, _, _ in rules.alerts) == [146, 147, 148, 149, 150]
    assert rules.alerts[146, 120, 0] == (0, 50)


def test_an_accident_is_over_as_soon_as_one_vehicle_moves():
    rules = Rules(0)
    stop_two(rules)
    moved = [(1, 0, 2, 0, 50, 264_100), (2, 9, 2, 0, 50, 264_200), (5, 50, 1, 0, 49, 258_800)]
    drive(rules, 120, *moved)
    assert not rules.alerts


def test_a_direction_hears_only_of_its_own_reports():
    rules = Rules(0)
    stop_two(rules)
    elsewhere, entering = (2, 50, 1, 1, 50, 264_100), (5, 50, 1, 0, 49, 258_800)
    drive(rules, 119, elsewhere)
    drive(rules, 120, (1, 0, 2, 0, 50, 264_100), entering)
    assert (5, 120, 0) in rules.alerts
    drive(rules, 121, (6, 50, 1, 0, 49, 258_800))
    assert (6, 121, 0) not in rules.alerts, "it is silent for more than 30 seconds"


def test_a_vehicle_may_report_in_both_directions_in_one_second():
    rules = Rules(0)
    here, there = (1, 50, 1, 0, 50, 264_100), (1, 50, 1, 1, 20, 105_700)
    drive(rules, 5, here, there, here)
    assert rules.tolls == {(1, 5, 0): (0, 0), (1, 5, 1): (0, 0)}


def test_westward_vehicles_are_alerted_from_the_other_side():
    rules = Rules(3)
    for second in range(0, 121, 30):
        drive(rules, second, (1, 0, 2, 1, 50, 264_100), (2, 0, 2, 1, 50, 264_100))
    drive(rules, 121, (7, 50, 1, 1, 54, 286_000), (8, 50, 1, 1, 49, 259_000))
    assert dict(rules.alerts) == {(7, 121, 1): (3, 50)}


def test_a_toll_is_charged_on_leaving_for_another_segment_and_not_on_exit():
    rules = Rules(0)
    for second in (0, 30):
        drive(rules, second, *((vid, 10, 1, 0, 5, 27_000 + vid) for vid in range(51)))
    drive(rules, 60, (100, 10, 0, 0, 5, 27_000), (101, 10, 0, 0, 5, 27_000))
    assert rules.tolls[100, 60, 0] == (10, 2)
    assert drive(rules, 90, (100, 10, 4, 0, 6, 32_000), (101, 10, 4, 0, 5, 28_000)) == [(100, 2)]
    assert (100, 90, 0) not in rules.tolls, "the exit lane is told nothing"


def test_there_is_no_toll_where_traffic_is_fast_or_light():
    fast, light = Rules(0), Rules(0)
    for second in (0, 30):
        drive(fast, second, *((vid, 40, 1, 0, 5, 27_000 + vid) for vid in range(60)))
        drive(light, second, *((vid, 10, 1, 0, 5, 27_000 + vid) for vid in range(50)))
    for rules, lav in ((fast, 40), (light, 10)):
        drive(rules, 60, (100, 10, 0, 0, 5, 27_000))
        assert rules.tolls[100, 60, 0] == (lav, 0)
