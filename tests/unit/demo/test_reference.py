"""The detection itself, on whole logs, in plain Python."""

import random

import pytest

from headrace.demo.model import BUCKET
from headrace.demo.queries import DAYS, REGIONS, make_log
from headrace.demo.reference import Finding, reference, region_counts
from headrace.demo.score import score


def test_the_demo_finds_everything_and_nothing_else_with_its_default_seed() -> None:
    log = make_log()
    result = score(reference(log.records(late=False)), log.planted)
    assert (result.precision, result.recall) == (1.0, 1.0)


@pytest.mark.parametrize("seed", [2, 3, 20, 77])
def test_other_seeds_do_well_too(seed: int) -> None:
    log = make_log(seed)
    result = score(reference(log.records(late=False)), log.planted)
    assert result.precision >= 0.8
    assert result.recall >= 0.8


def test_judged_by_arrival_the_delayed_flurry_would_be_a_false_alarm() -> None:
    log = make_log()
    flurry = next(event for event in log.planted if event.kind == "flurry")
    wrong = score(reference(log.by_arrival(), lateness="0s"), log.planted).false_alarms
    assert ("dip", flurry.query) in {(incident.kind, incident.query) for incident in wrong}


def test_the_order_of_the_records_does_not_matter() -> None:
    records = list(make_log().records(late=False))
    expected = reference(records)
    random.Random(1).shuffle(records)
    assert reference(records) == expected


def test_silence_is_a_dip_only_once_the_watermark_proves_it() -> None:
    def searches(last_bucket: int) -> list[dict[str, object]]:
        busy = [
            {"ts": bucket * BUCKET + i, "query": "q"} for bucket in range(30) for i in range(40)
        ]
        return [*busy, {"ts": last_bucket * BUCKET, "query": "other"}]

    assert reference(searches(32), lateness="2h") == []
    dip = reference(searches(33), lateness="2h")
    assert [(finding.kind, finding.start // BUCKET) for finding in dip] == [("dip", 30)]


def test_regions_add_up_to_the_whole() -> None:
    log = make_log()
    counts = region_counts(log.records(late=False))
    assert sum(counts.values()) == len(log) - log.late
    assert len(counts) == len(REGIONS) * DAYS * 24


def test_a_finding_is_read_back_from_its_row() -> None:
    row = {"kind": "dip", "query": "q", "start": 1, "limit": 2, "seen": 3}
    assert Finding.of(row) == Finding("dip", "q", 1, 2)
