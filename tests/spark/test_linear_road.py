"""The Linear Road workload on Spark: paced, timed and validated."""

import pytest

from headrace.errors import HeadraceError
from headrace.workloads.linear_road.input_files import write_traffic
from headrace.workloads.linear_road.measuring import RoadSettings, load, measure, validate_again
from headrace.workloads.linear_road.traffic import Traffic


def test_paced_input_is_answered_rightly_and_timed(spark, tmp_path):
    traffic = Traffic(
        roads=2, minutes=4, first_rate=10, last_rate=30, segments=(50, 53), incidents_per_hour=120
    )
    index = write_traffic(tmp_path / "in", traffic)
    settings = RoadSettings(from_minute=3, speed=12.0, slots=2, validate=False)
    said: list[str] = []
    loaded = load(tmp_path / "in", index, tmp_path, settings, spark=spark, say=said.append)
    assert loaded.lines_per_s
    with pytest.raises(HeadraceError, match="other input"):
        other = RoadSettings(from_minute=2)
        measure(tmp_path / "in", index, tmp_path, other, spark=spark, say=said.append)
    outcome = measure(tmp_path / "in", index, tmp_path, settings, spark=spark, say=said.append)
    assert outcome.right is None
    outcome = validate_again(tmp_path / "in", tmp_path, said.append)
    assert outcome.right, outcome.verdict
    timed = outcome.timed["all"]
    assert 0 < timed.answers < sum(outcome.answers.values())
    assert 0 < timed.percentiles["p50"] <= timed.percentiles["p100"]
    assert outcome.held == (timed.late == 0)
