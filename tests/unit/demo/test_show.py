"""What the demo tells, from rows as the pipeline writes them."""

import json
from pathlib import Path

import pytest

from headrace.demo.model import BUCKET
from headrace.demo.outcome import DemoOutcome, Row, Tail, read_outcome
from headrace.demo.queries import SearchLog, make_log
from headrace.demo.reference import Finding, reference, region_counts
from headrace.demo.show import Announcer, closing_lines, opening_lines
from headrace.model.values.time import MINUTE


def row(finding: Finding) -> Row:
    return {**finding._asdict(), "seen": finding.start + 10 * MINUTE}


@pytest.fixture(scope="module")
def log() -> SearchLog:
    return make_log()


@pytest.fixture(scope="module")
def outcome(log: SearchLog) -> DemoOutcome:
    records = list(log.records(late=False))
    regions = region_counts(records).items()
    return DemoOutcome(
        [row(finding) for finding in reference(records)],
        [{"region": region, "bucket": bucket, "count": n} for (region, bucket), n in regions],
        log.late,
    )


def write(directory: Path, epoch: int, rows: list[Row]) -> None:
    place = directory / f"epoch={epoch:012d}"
    place.mkdir(parents=True)
    (place / "part-x.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


def test_a_perfect_run_is_told_as_one(log: SearchLog, outcome: DemoOutcome) -> None:
    text = "\n".join(closing_lines(log, outcome, Path("/somewhere")))
    assert "Precision 1.00" in text
    assert "Recall    1.00: 7 of 7 events were found." in text
    assert "rightly not reported (by arrival: a false dip" in text
    assert f"Late records: {log.late} were more than 3h late, {log.late} were planted." in text
    assert "MISSED" not in text and "FALSE ALARM" not in text
    assert "/somewhere" in text


def test_a_poor_run_is_told_as_one_too(log: SearchLog, outcome: DemoOutcome) -> None:
    wrong = Finding("dip", "watch repair", 100 * BUCKET, 5)
    poor = DemoOutcome([row(wrong)], outcome.regions, 3)
    text = "\n".join(closing_lines(log, poor, Path("/somewhere")))
    assert "Precision 0.00" in text
    assert "Recall    0.00" in text
    assert text.count("MISSED") == 7
    assert "FALSE ALARM" in text
    assert "THESE DIFFER" in text


def test_regions_are_drawn_by_the_hour(log: SearchLog, outcome: DemoOutcome) -> None:
    lines = closing_lines(log, outcome, Path("/somewhere"))
    (europe,) = [line for line in lines if line.strip().startswith("europe")]
    bars = europe.split()[1]
    assert len(bars) == 24
    assert bars[15] == "█" and bars[3] == "▂"  # Europe searches by day and sleeps at night.


def test_an_incident_is_announced_once() -> None:
    announcer = Announcer()
    first = row(Finding("spike", "tea", 5 * BUCKET, 12))
    second = row(Finding("spike", "tea", 6 * BUCKET, 12))
    later = row(Finding("dip", "tea", 9 * BUCKET, 12))
    (line,) = announcer.lines([first])
    assert "spike  tea" in line
    assert "more than 12 in the hour, with 50 min of it to go" in line
    assert announcer.lines([second]) == []
    assert "proven by the watermark" in announcer.lines([later])[0]


def test_the_tail_gives_each_finding_once_and_only_whole_epochs(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    assert tail.fresh() == []
    spike, dip = row(Finding("spike", "a", 2, 1)), row(Finding("dip", "b", 1, 1))
    write(tmp_path / "spikes", 1, [spike])
    write(tmp_path / "dips", 1, [dip])
    write(tmp_path / "spikes" / "_staging", 2, [spike])
    assert tail.fresh() == [dip, spike]
    assert tail.fresh() == []


def test_the_outcome_is_read_back_from_the_output(tmp_path: Path) -> None:
    write(tmp_path / "spikes", 3, [row(Finding("spike", "a", 2, 1))])
    write(tmp_path / "regions", 1, [{"region": "asia", "bucket": 1, "count": 9}])
    write(tmp_path / "late", 2, [{"ts": 1}, {"ts": 2}])
    found = read_outcome(tmp_path)
    assert [r["query"] for r in found.findings] == ["a"]
    assert found.regions == [{"region": "asia", "bucket": 1, "count": 9}]
    assert found.late == 2


def test_the_opening_says_what_is_to_come(log: SearchLog) -> None:
    assert f"{len(log):,} searches" in opening_lines(log, 4)[0]
