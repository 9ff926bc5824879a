"""Whole runs from input files to output files, without Spark; the long one is behind a variable."""

import os

import pytest
from tests.unit.engine.support import driver_of, run
from tests.unit.workloads.linear_road.support import SHARED_DATA

from headrace import sinks
from headrace.workloads.linear_road.given import asked_of, given_answers, read_answers
from headrace.workloads.linear_road.input_files import read_history, write_text, write_traffic
from headrace.workloads.linear_road.measuring import latencies
from headrace.workloads.linear_road.pipeline import linear_road
from headrace.workloads.linear_road.source import RoadFiles
from headrace.workloads.linear_road.traffic import Traffic
from headrace.workloads.linear_road.validator import validate


def answers_to(files, output, *, records):
    """What the pipeline writes for a directory of input, in epochs of about so many lines."""
    pipeline = linear_road(RoadFiles(files), read_history(files), sinks.parquet(output))
    run(driver_of(pipeline.freeze(), epoch_records=records))
    return read_answers(output, lambda second: None)


def test_the_sample_is_answered_rightly(tmp_path):
    sample = SHARED_DATA / "linear_road_20s.dat"
    if not sample.exists():
        pytest.skip(f"needs the real data in {SHARED_DATA}")
    write_text(tmp_path / "in", sample)
    answers = answers_to(tmp_path / "in", tmp_path / "out", records=40)
    verdict = validate(asked_of(tmp_path / "in"), given_answers(answers))
    assert verdict.right, verdict.examples
    assert dict(verdict.checked) == {"toll": 279, "expenditure": 1}


def test_files_are_answered_rightly_and_nothing_waits_for_the_next_second(tmp_path):
    traffic = Traffic(
        roads=2, minutes=5, first_rate=10, last_rate=30, segments=(50, 53), incidents_per_hour=120
    )
    write_traffic(tmp_path / "in", traffic)
    pipeline = linear_road(
        RoadFiles(tmp_path / "in"), read_history(tmp_path / "in"), sinks.parquet(tmp_path / "out")
    )
    driver = driver_of(pipeline.freeze(), epoch_records=600)
    run(driver, 5)
    reached = driver.ledger.ins["Roads"] // 10**6
    answered = read_answers(tmp_path / "out", lambda second: None)["time"].to_pylist()
    assert max(answered) == reached - 1
    run(driver)
    answers = read_answers(tmp_path / "out", lambda second: 0.0 if second >= 240 else None)
    verdict = validate(asked_of(tmp_path / "in"), given_answers(answers))
    assert verdict.right, verdict.examples
    late = latencies(answers)["all"]
    assert late.late == late.answers == sum(verdict.late.values()) > 0, "since 1970, that is long"


@pytest.mark.skipif(
    not os.environ.get("HEADRACE_LINEAR_ROAD"),
    reason="takes minutes: HEADRACE_LINEAR_ROAD=1 runs a whole hour of one road",
)
@pytest.mark.timeout(3600)
def test_a_whole_hour_of_one_road_is_answered_rightly(tmp_path):
    write_traffic(tmp_path / "in", Traffic(roads=1, minutes=60))
    answers = answers_to(tmp_path / "in", tmp_path / "out", records=40_000)
    verdict = validate(asked_of(tmp_path / "in"), given_answers(answers))
    print(verdict)
    assert verdict.right, verdict.examples
    assert verdict.tolls_above_zero > 100_000 and verdict.checked["alert"] > 1_000
