"""The whole pipeline in the harness: however the log is cut, the answer is that of plain Python."""

from typing import Any

import pytest

from headrace import Pipeline, sources
from headrace.demo.queries import LATENESS, make_log
from headrace.demo.reference import Finding, reference, region_counts
from headrace.demo.zeitgeist import zeitgeist
from headrace.testing import CRASH, Harness

LOG = make_log()
# One query of each kind of event; the model of a query knows of no other.
CHOSEN = {event.kind: event.query for event in LOG.planted}
RECORDS = [r for r in LOG.records(late=False) if r["query"] in CHOSEN.values()]


def pipeline() -> Pipeline:
    return zeitgeist(sources.memory([], timestamp="ts", lateness=LATENESS))


def findings(harness: Harness) -> list[Finding]:
    return sorted(map(Finding.of, [*harness.read("spikes"), *harness.read("dips")]))


def regions(harness: Harness) -> dict[tuple[str, int], int]:
    return {(r["region"], r["bucket"]): r["count"] for r in harness.read("regions")}


def by_time(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: (row["seen"], row["query"]))


@pytest.mark.parametrize("slots", [1, 2, 5])
@pytest.mark.parametrize("epochs", [1, 6, 30])
def test_findings_and_regions_are_those_of_plain_python(slots: int, epochs: int) -> None:
    size = len(RECORDS) // epochs + 1
    with Harness(pipeline(), slots=slots, epoch_records=size, twice=epochs == 6) as h:
        h.send("queries", *RECORDS)
        summary = h.end()
        assert findings(h) == reference(RECORDS)
        assert regions(h) == region_counts(RECORDS)
        assert h.epoch > epochs
    assert (summary.late, summary.notes) == (0, ())


def test_the_chosen_records_hold_something_to_find() -> None:
    kinds = {(finding.kind, finding.query) for finding in reference(RECORDS)}
    assert kinds == {("spike", CHOSEN["spike"]), ("dip", CHOSEN["outage"])}


def test_a_spike_is_out_before_its_hour_is_over_and_a_dip_after() -> None:
    (start,) = [event.start for event in LOG.planted if event.query == CHOSEN["spike"]]
    before, hour = [r for r in RECORDS if r["ts"] < start], 60 * 60 * 1_000_000
    with Harness(pipeline(), twice=False) as h:
        h.send("queries", *before)
        h.settle()
        told = len(h.read("spikes"))
        after = RECORDS[len(before) :]
        h.send("queries", *[r for r in after if r["ts"] < start + hour])
        spike = h.read("spikes")[told]
        assert spike["query"] == CHOSEN["spike"]
        assert start <= spike["seen"] < spike["start"] + hour
        # The watermark is hours behind, so the counter has not told that hour yet.
        told_windows = {(row["query"], row["bucket"]) for row in h.read("windows")}
        assert (spike["query"], spike["start"] // hour) not in told_windows


def test_late_records_are_counted_to_the_last_one() -> None:
    late = [r for r in LOG.records() if r["query"] == "weather"][:7]
    with Harness(pipeline(), epoch_records=len(RECORDS) // 5, twice=False) as h:
        h.send("queries", *RECORDS, *late)
        h.end()
        assert len(h.read("late")) == len(late)
        assert findings(h) == reference(RECORDS)


def test_a_driver_that_dies_now_and_then_changes_nothing() -> None:
    third = len(RECORDS) // 3
    with Harness(pipeline(), twice=False) as h:
        h.send("queries", *RECORDS[:third], CRASH, *RECORDS[third : 2 * third], CRASH)
        h.send("queries", *RECORDS[2 * third :])
        h.crash(at="after-commit-write")
        h.end()
        assert h.crashes == 3
        assert findings(h) == reference(RECORDS)
        assert regions(h) == region_counts(RECORDS)


def test_even_the_moment_of_each_report_is_the_same_for_every_cut() -> None:
    rows = []
    for epochs in (2, 11):
        size = len(RECORDS) // epochs + 1
        with Harness(pipeline(), epoch_records=size, twice=False) as h:
            h.send("queries", *RECORDS)
            h.end()
            rows.append(by_time([*h.read("spikes"), *h.read("dips")]))
    assert rows[0] == rows[1]


def test_nothing_is_left_in_state_but_what_is_learned() -> None:
    with Harness(pipeline(), twice=False) as h:
        h.send("queries", *RECORDS)
        h.end()
        assert h.keys("SpikeDetector") == []
        assert sorted(h.keys("DipDetector")) == sorted(CHOSEN.values())
