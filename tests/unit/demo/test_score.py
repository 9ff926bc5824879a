"""Precision and recall, on cases small enough to know by hand."""

from headrace.demo.model import BUCKET
from headrace.demo.queries import Planted
from headrace.demo.reference import Finding
from headrace.demo.score import incidents_of, score


def spike(query: str, hour: int) -> Finding:
    return Finding("spike", query, hour * BUCKET, 10)


def event(kind: str, query: str, start: float, end: float) -> Planted:
    return Planted(kind, query, int(start * BUCKET), int(end * BUCKET))


def test_neighbouring_findings_are_one_incident() -> None:
    found = incidents_of([spike("a", 5), spike("a", 3), spike("a", 4), spike("a", 7)])
    assert [(i.start // BUCKET, i.end // BUCKET) for i in found] == [(3, 6), (7, 8)]


def test_findings_of_other_kinds_and_queries_are_other_incidents() -> None:
    dip = Finding("dip", "a", 4 * BUCKET, 10)
    assert len(incidents_of([spike("a", 3), dip, spike("b", 4)])) == 3


def test_all_found_and_nothing_else_is_one_and_one() -> None:
    result = score([spike("a", 3), spike("a", 4)], [event("spike", "a", 3.5, 5)])
    assert (result.precision, result.recall) == (1.0, 1.0)


def test_a_false_alarm_costs_precision_and_a_miss_recall() -> None:
    planted = [event("spike", "a", 3, 4), event("outage", "b", 3, 4)]
    result = score([spike("a", 3), spike("c", 9)], planted)
    assert (result.precision, result.recall) == (0.5, 0.5)
    assert [incident.query for incident in result.false_alarms] == ["c"]
    assert [missed.query for missed in result.missed] == ["b"]


def test_the_wrong_kind_or_the_wrong_hour_does_not_count() -> None:
    result = score([spike("a", 3)], [event("outage", "a", 3, 4), event("spike", "a", 4, 5)])
    assert (result.precision, result.recall) == (0.0, 0.0)


def test_any_report_of_a_flurry_is_a_false_alarm_and_silence_is_no_miss() -> None:
    flurry = event("flurry", "a", 3, 5)
    assert score([], [flurry]).recall == 1.0
    assert score([spike("a", 4)], [flurry]).precision == 0.0


def test_saying_nothing_is_precise_but_finds_nothing() -> None:
    result = score([], [event("spike", "a", 3, 4)])
    assert (result.precision, result.recall) == (1.0, 0.0)
