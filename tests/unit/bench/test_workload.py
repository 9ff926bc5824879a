"""The input of the keyed count is a pure function of its workload."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.bench import workload as workload_module
from headrace.bench.workload import INPUT_SCHEMA, CountWorkload, expected_counts, write_input
from headrace.errors import HeadraceError


def _counted_from(paths: list[Path]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for path in paths:
        counts.update(pq.read_table(path)["key"].to_pylist())
    return counts


def _expected(workload: CountWorkload) -> dict[str, int]:
    table = expected_counts(workload)
    return dict(zip(table["key"].to_pylist(), table["count"].to_pylist(), strict=True))


def test_the_same_workload_gives_the_same_records_and_another_seed_gives_others(
    tmp_path: Path,
) -> None:
    workload = CountWorkload(records=500, keys=20, epochs=2, warmup_epochs=1)
    first = [pq.read_table(path) for path in write_input(workload, tmp_path / "a")]
    again = [pq.read_table(path) for path in write_input(workload, tmp_path / "b")]
    other = CountWorkload(records=500, keys=20, epochs=2, warmup_epochs=1, seed=2)
    different = [pq.read_table(path) for path in write_input(other, tmp_path / "c")]
    assert first == again
    assert first != different


def test_one_file_per_epoch_in_the_order_of_name_and_of_time(tmp_path: Path) -> None:
    workload = CountWorkload(records=10, keys=5, epochs=9, warmup_epochs=3)
    paths = write_input(workload, tmp_path)
    assert len(paths) == workload.last_epoch == 12
    assert paths == sorted(paths)
    times = [path.stat().st_mtime for path in paths]
    assert times == sorted(set(times))


def test_records_have_the_declared_columns_and_growing_timestamps(tmp_path: Path) -> None:
    paths = write_input(CountWorkload(records=10, keys=5, epochs=2, warmup_epochs=0), tmp_path)
    timestamps: list[int] = []
    for path in paths:
        table = pq.read_table(path)
        assert table.schema.equals(INPUT_SCHEMA)
        timestamps += table["ts"].to_pylist()
        assert all(len(key) == 7 and key.startswith("k") for key in table["key"].to_pylist())
    assert timestamps == sorted(set(timestamps))


def test_expected_counts_are_those_of_the_files(tmp_path: Path) -> None:
    workload = CountWorkload(records=300, keys=50, epochs=3, warmup_epochs=2)
    assert _expected(workload) == _counted_from(write_input(workload, tmp_path))


def test_with_a_call_per_record_the_values_of_the_files_are_what_counts(tmp_path: Path) -> None:
    workload = CountWorkload(records=300, keys=50, epochs=3, warmup_epochs=2, hook="record")
    totals: Counter[str] = Counter()
    for path in write_input(workload, tmp_path):
        for record in pq.read_table(path).to_pylist():
            totals[record["key"]] += record["value"]
    assert _expected(workload) == totals


def test_a_hook_that_reads_values_is_not_asked_to_do_without_them() -> None:
    with pytest.raises(HeadraceError, match="columns"):
        CountWorkload(hook="record", columns="key")


def test_preloaded_state_is_counted_once_per_key_and_epochs_touch_a_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload_module, "PRELOAD_RECORDS_PER_EPOCH", 400)
    workload = CountWorkload(records=100, keys=10, epochs=2, warmup_epochs=1, state_keys=1_000)
    paths = write_input(workload, tmp_path)
    assert workload.preload_epochs == 3
    assert workload.first_measured_epoch == 5
    sizes = [pq.read_metadata(path).num_rows for path in paths]
    assert sizes == [400, 400, 200, 100, 100, 100]
    assert sizes == [workload.records_in(epoch + 1) for epoch in range(6)]
    preload = _counted_from(paths[:3])
    assert len(preload) == 1_000
    assert set(preload.values()) == {1}
    touched = [set(_counted_from([path])) for path in paths[3:]]
    assert all(len(keys) <= 10 for keys in touched)
    assert len(set.union(*touched)) > 10
    assert _expected(workload) == _counted_from(paths)


@pytest.mark.parametrize(
    "wrong",
    [
        {"records": 0},
        {"keys": 0},
        {"epochs": 0},
        {"state_keys": -1},
        {"hook": "x"},
        {"sink": "x"},
        {"columns": "x"},
    ],
)
def test_an_impossible_workload_is_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(HeadraceError, match=next(iter(wrong))):
        CountWorkload(**wrong)  # type: ignore[arg-type]
