"""The benchmark of growth, on a small scale."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.bench import growth
from headrace.bench.growth import Growth, format_growth, run_growth
from headrace.errors import HeadraceError
from headrace.limits import Limits


def test_log_and_snapshots_do_not_grow_with_the_files_that_were_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "EPOCHS_MIN", 50)
    document = run_growth(
        Growth(files=300, per_epoch=6), work_dir=tmp_path, limits=Limits(sealed_rows_min=16)
    )
    json.dumps(document)
    assert document["results_equal"]
    bars = {bar["name"]: bar["reached"] for bar in document["bars"]}
    assert bars["log bytes per epoch, late / early"] and bars["snapshot bytes, late / early"]
    assert len(document["epochs"]) == 50
    assert 40 < document["record_bytes_per_file"] < 400
    shown = format_growth(document)
    assert "300 files, 6 in an epoch" in shown and "results equal: yes" in shown


def test_what_stays_in_the_ledger_is_seen_to_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "EPOCHS_MIN", 50)  # and all files fit into the ledger
    document = run_growth(Growth(files=200, per_epoch=4), work_dir=tmp_path)
    bars = {bar["name"]: bar["reached"] for bar in document["bars"]}
    assert not bars["snapshot bytes, late / early"]
    assert document["snapshot_bytes"]["slope_per_10k_files"] > 0


def test_lines_are_counted_in_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def twice(self: Any, record: Any, ctx: Any) -> None:
        self.lines += 2

    monkeypatch.setattr(growth, "EPOCHS_MIN", 10)
    monkeypatch.setattr(growth.CountLines, "process_record", twice)
    document = run_growth(Growth(files=20, per_epoch=2), work_dir=tmp_path)
    assert not document["results_equal"]
    assert not any(bar["reached"] for bar in document["bars"])


def test_too_few_files_show_nothing() -> None:
    with pytest.raises(HeadraceError, match="50 files are fewer than 100 epochs of 10"):
        run_growth(Growth(files=50, per_epoch=10))
