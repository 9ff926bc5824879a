"""Growth along several axes, on a small scale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.bench.growing import epochs as growing_epochs
from headrace.bench.growing.axes import AXES, judged, measure, run_axes, shape_of
from headrace.bench.growing.run import format_all, run_all
from headrace.bench.growth import Growth
from headrace.errors import HeadraceError


@pytest.mark.parametrize("axis", list(AXES))
def test_each_axis_changes_one_thing_and_counts_right(
    axis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = shape_of(axis, 64 if axis == "state" else 2)
    assert sum(mine != other for mine, other in zip(shape, shape_of(axis, 3))) == 1
    assert measure(shape._replace(records=min(shape.records, 20)))["right"]


def test_a_slope_above_its_bar_is_missed() -> None:
    def points(power: float) -> list[dict[str, object]]:
        return [{"size": n, "cpu_ms": n**power, "right": True} for n in (10, 100, 1000)]

    assert judged(AXES["state"], points(0.1))["bar"]["reached"]
    assert not judged(AXES["state"], points(0.5))["bar"]["reached"]
    wrong = [{**point, "right": False} for point in points(0.1)]
    assert not judged(AXES["state"], wrong)["bar"]["reached"]


def test_what_grows_with_epochs_is_seen() -> None:
    flat = [
        {"epoch": n, "cpu_ms": 5.0, "memory_mb": 90.0, "files": 9.0, "log_bytes": 100.0}
        for n in range(1, 101)
    ]
    assert all(bar["reached"] for bar in growing_epochs.judged(flat, right=True)["bars"])
    leaking = [{**point, "memory_mb": 90.0 + point["epoch"]} for point in flat]
    missed = [b["name"] for b in growing_epochs.judged(leaking, right=True)["bars"]
              if not b["reached"]]  # fmt: skip
    assert missed == ["epochs: memory_mb, late / early"]


def test_some_axes_make_one_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing_epochs, "SAMPLES", 20)
    monkeypatch.setitem(AXES, "slots", AXES["slots"]._replace(sizes=(1, 4)))
    document = run_all(["slots", "epochs"], Growth(), epochs=200, work_dir=tmp_path)
    json.dumps(document)
    assert document["results_equal"] and list(document["axes"]) == ["slots", "epochs"]
    assert len(document["axes"]["epochs"]["points"]) == 20
    shown = format_all(document)
    assert "slots" in shown and "200 epochs: cpu_ms" in shown
    assert run_axes([]) == {}


def test_few_epochs_show_nothing() -> None:
    with pytest.raises(HeadraceError, match="50 epochs are too few"):
        growing_epochs.run_epochs(50)
