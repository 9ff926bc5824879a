"""What a resize under load costs, from the times at which files appeared and became visible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.bench.elastic.rescale import format_rescale, run_rescale
from headrace.bench.elastic.steady import (
    AROUND,
    SIZES,
    SteadyFeed,
    pauses,
    resized_before,
    visible_files,
)
from headrace.bench.frame.runner import SystemOutcome
from headrace.bench.frame.system import RESCALED, SPARK_REPARTITION, Task
from headrace.bench.workload import CountWorkload, write_input
from headrace.errors import HeadraceError

STAGE = 2 * AROUND


def workload(**changes: Any) -> CountWorkload:
    shape = {"records": 10, "keys": 5, "epochs": STAGE * len(SIZES), "warmup_epochs": 4}
    return CountWorkload(**{**shape, **changes})


def test_every_size_after_the_first_is_asked_for_once_with_room_around_it() -> None:
    found = resized_before(workload())
    assert list(found.values()) == list(SIZES[1:])
    assert list(found) == [5 + STAGE, 5 + 2 * STAGE, 5 + 3 * STAGE]
    with pytest.raises(HeadraceError, match="too few"):
        resized_before(workload(epochs=STAGE * len(SIZES) - 1))


def test_a_pause_is_how_much_longer_the_slowest_file_took_than_before_the_resize() -> None:
    shape = workload()
    epochs = range(shape.first_measured_epoch, shape.last_epoch + 1)
    written = {epoch: float(epoch) for epoch in epochs}
    took = dict.fromkeys(epochs, 0.1)
    first, second, third = resized_before(shape)
    took[first - 2] = 0.15  # the machine is not quite steady
    took[first + 1] = 1.15
    took[second] = 0.05  # faster than before: no pause
    took[third + AROUND] = 9.0  # later: not of the resize
    found = pauses(shape, written, {epoch: written[epoch] + took[epoch] for epoch in epochs})
    assert found.pause_ms == pytest.approx((1000.0, 0.0, 0.0))
    numbers = found.numbers()
    assert numbers["pause_ms"] == 0 and numbers["pause_ms_worst"] == pytest.approx(1000)
    assert numbers["file_latency_ms_p50"] == pytest.approx(100)


def test_a_file_that_never_became_visible_is_an_error() -> None:
    shape = workload()
    epochs = range(1, shape.last_epoch + 1)
    with pytest.raises(HeadraceError, match="never appeared"):
        pauses(shape, dict.fromkeys(epochs, 1.0), dict.fromkeys(epochs[:-1], 2.0))


def test_a_file_is_visible_when_all_its_records_are() -> None:
    shape = workload(epochs=48, warmup_epochs=0)
    steps = [(4, 1.0), (6, 2.0), (25, 3.0), (0, 4.0), (5, 5.0)]
    assert visible_files(shape, steps) == {1: 2.0, 2: 3.0, 3: 3.0, 4: 5.0}


def test_files_appear_in_order_and_resizes_between_them(tmp_path: Path) -> None:
    shape = workload(records=1, epochs=48, warmup_epochs=4)
    write_input(shape, tmp_path / "all")
    feed = SteadyFeed(shape, tmp_path / "all", tmp_path / "in")
    seen: list[int] = []
    interval_s = feed.warm_up(seen.append)
    assert seen == [1, 2, 3, 4] and interval_s >= 0.2
    sizes: list[int] = []
    waited: list[int] = []
    feed.steadily(0.001, sizes.append, waited.append)
    assert sizes == list(SIZES[1:])
    # The files that are compared with those after a resize come when all is quiet.
    assert waited == [*(at - AROUND - 1 for at in resized_before(shape)), shape.last_epoch]
    assert list(feed.written) == list(range(1, shape.last_epoch + 1))
    assert len(list((tmp_path / "in").iterdir())) == shape.last_epoch


def test_a_resize_that_fails_fails_the_run(tmp_path: Path) -> None:
    shape = workload(records=1)
    write_input(shape, tmp_path / "all")
    feed = SteadyFeed(shape, tmp_path / "all", tmp_path / "in")

    def refuse(size: int) -> None:
        raise HeadraceError(f"no {size}")

    with pytest.raises(HeadraceError, match="no 8"):
        feed.steadily(0.0, refuse, lambda epoch: None)


def outcome(pause_ms: float, mismatches: list[str], **more: float) -> SystemOutcome:
    numbers = {"pause_ms": pause_ms, "pause_ms_worst": pause_ms, **more}
    numbers |= {"file_latency_ms_p50": 90.0, "file_latency_ms_worst": 100.0}
    return SystemOutcome("s", [10.0, 12.0], 20, mismatches, {}, {}, numbers)


@pytest.mark.parametrize("wrong", [[], ["k1: counted 1, expected 2"]])
def test_the_document_says_how_much_less_the_disturbance_is(
    tmp_path: Path, wrong: list[str]
) -> None:
    def launch(system: str, task: Task) -> SystemOutcome:
        if system == RESCALED:
            return outcome(100.0, wrong, rescale_epoch_ratio=1.5)
        assert system == SPARK_REPARTITION
        return outcome(4000.0, [])

    found = run_rescale(workload(), rounds=3, work_dir=tmp_path, launch=launch)
    assert found["systems"]["headrace"]["pause_ms"] == 100
    assert found["systems"]["spark-repartition"]["pause_ms"] == 4000
    assert found["ratios"] == {"spark-repartition": {"pause": 0.025}}
    assert found["results_equal"] is (not wrong)
    assert [bar["reached"] for bar in found["bars"]] == [not wrong, not wrong]
    assert "2 -> 8 -> 3 -> 5" in format_rescale(found)
