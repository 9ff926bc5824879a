"""The pipeline against the validator, however the input is cut, through crashes and rescales."""

import random
from itertools import pairwise

import pytest
from tests.unit.workloads.linear_road.support import in_order, right_answers, small

from headrace import SECOND, sources
from headrace.errors import UserCodeError
from headrace.plan.control import ControlRequest
from headrace.testing import Harness
from headrace.workloads.linear_road.pipeline import linear_road


def test_the_validator_agrees_with_every_answer():
    verdict = small().judge(list(right_answers()))
    assert verdict.right, verdict.examples
    assert verdict.tolls_above_zero > 100, "a test without tolls would show nothing"
    assert verdict.checked["alert"] > 50
    assert verdict.checked["balance"] > 100 and verdict.checked["expenditure"] > 10
    balances = [a["balance"] for a in right_answers() if a["type"] == 2]
    assert sum(balance > 0 for balance in balances) > 10


def test_answers_do_not_depend_on_cuts_crashes_and_slots():
    run, dice = small(), random.Random(1)
    rows = run.rows()
    points = ("before-commit-write", "after-commit-write", "before-job", "after-plan-write")
    with Harness(run.pipeline(), slots=2) as h:
        at, rescaled = 0, False
        while at < len(rows):
            count = dice.choice([60, 900, 3_000])
            h.send("input", *rows[at : at + count])
            at += count
            if dice.random() < 0.3:
                h.crash(at=dice.choice(points))
            if at > len(rows) / 2 and not rescaled:
                rescaled = True
                h.settle()
                for name, slots in (("Roads", 4), ("Accounts", 3)):
                    asks = {"computation": name, "slots": slots}
                    request = ControlRequest("", name, name, "rescale", asks)
                    h._open().control.own(request)
        h.end()
        slots = h._open().ledger.slots
        assert (len(slots["Roads"]), len(slots["Accounts"])) == (4, 3)
        assert h.crashes > 0
        assert in_order(h.read("answers")) == in_order(right_answers())


def test_state_stays_small_when_vehicles_have_left():
    run = small()
    with Harness(run.pipeline(), twice=False) as h:
        h.send("input", *run.rows())
        h.advance("1s")
        road = h.state("Roads", (0, 0))
        last = max(road.vehicles)
        assert min(road.vehicles) >= last - 60 and len(road.minutes) < 12_000
        assert road.waiting == b""


def test_a_request_counts_the_charges_of_its_own_second_and_waits_for_them():
    """A vehicle crosses into a new segment and asks at once what it has paid."""

    def report(time, vid, seg, speed=20):
        return {
            "type": 0, "time": time, "vid": vid, "speed": speed, "xway": 0, "lane": 1, "dir": 0,
            "seg": seg, "pos": seg * 5280 + vid, "qid": -1, "day": -1,
        }  # fmt: skip

    def asks(time, vid, qid):
        return report(time, vid, -1) | {"type": 2, "qid": qid, "speed": -1, "pos": -1}

    nothing = small().history.slice(0, 0)
    crowd = [report(30 * n, vid, 10) for n in range(2) for vid in range(60)]
    enter, cross = report(60, 1000, 10), report(90, 1000, 11)
    with Harness(linear_road(sources.memory([], timestamp="time", unit="s"), nothing)) as h:
        h.send("input", *crowd, enter, asks(60, 1000, 1))
        h.send("input", asks(90, 1000, 2))
        h.send("input", cross)
        h.send("input", report(91, 5, 50))
        answers = h.read("answers")
        assert [(a["lav"], a["toll"]) for a in answers if a["vid"] == 1000 and a["type"] == 0] == [
            (20, 2 * (60 - 50) ** 2),
            (0, 0),
        ]
        found = {a["qid"]: (a["balance"], a["result_time"]) for a in answers if a["type"] == 2}
        assert found == {1: (0, 0), 2: (200, 90)}
        assert h.watermarks()["Accounts"] == 91 * SECOND


@pytest.mark.parametrize("cuts", [(), (1,), (1, 2), (3,)])
def test_a_request_that_comes_several_times_has_as_many_answers(cuts):
    request = {
        "type": 2, "time": 10, "vid": 1, "speed": -1, "xway": -1, "lane": -1, "dir": -1,
        "seg": -1, "pos": -1, "qid": 7, "day": -1,
    }  # fmt: skip
    source = sources.memory([], timestamp="time", unit="s")
    with Harness(linear_road(source, small().history.slice(0, 0))) as h:
        for start, end in pairwise((0, *cuts, 3)):
            h.send("input", *[request] * (end - start))
        assert h.read("answers") == []  # the last second waits
        h.send("input", request | {"time": 11, "qid": 8})
        h.send("input", request)  # too late to wait
        assert [a["qid"] for a in h.read("answers")] == [7] * 4
        h.end()
        assert [a["qid"] for a in h.read("answers")] == [7] * 4 + [8]


@pytest.mark.parametrize("cuts", [(), (1,), (1, 2), (2,)])
def test_a_vehicle_that_comes_back_in_a_minute_counts_once(cuts):
    def report(time, vid, seg):
        return {
            "type": 0, "time": time, "vid": vid, "speed": 20, "xway": 0, "lane": 1, "dir": 0,
            "seg": seg, "pos": seg * 5280 + vid, "qid": -1, "day": -1,
        }  # fmt: skip

    rounds = [[report(20 * n, vid, seg) for vid in range(60)] for n, seg in enumerate((5, 6, 5))]
    source = sources.memory([], timestamp="time", unit="s")
    with Harness(linear_road(source, small().history.slice(0, 0))) as h:
        for start, end in pairwise((0, *cuts, 3)):
            h.send("input", *(row for some in rounds[start:end] for row in some))
        h.send("input", report(60, 100, 5), report(60, 101, 6))
        h.end()
        tolls = {a["vid"]: a["toll"] for a in h.read("answers") if a["time"] == 60}
    assert tolls == {100: 200, 101: 200}


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ({"seg": 100}, "seg is 100, not 0 to 99"),
        ({"speed": None}, "speed is empty"),
        ({"type": 7}, "type is 7, not one of 0, 2, 3, 4"),
    ],
)
def test_a_line_that_cannot_be_is_refused_with_its_reason(cell, reason):
    run = small()
    bad = {**run.rows()[0], **cell}
    with (
        pytest.raises(UserCodeError, match=reason),
        Harness(run.pipeline()) as h,
    ):
        h.send("input", bad)
