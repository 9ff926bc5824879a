"""How much memory an export takes: a part of the state, however large its values are."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.property.slots import NAME, Slots

from headrace.engine.primitives import epoch_state, export
from headrace.engine.primitives.epoch_state import EpochState
from headrace.model.values.codec import encode_value
from headrace.model.values.keys import encode_key
from headrace.model.values.time import END
from headrace.state.segment import FIELD
from headrace.store.disk import DiskStore

MB = 1_000_000
VALUE_BYTES = 20_000
KEYS = 2_000


@pytest.fixture(scope="module")
def state() -> EpochState:
    """40 MB of values that hardly compress, in 2,000 keys."""
    dice, slots = random.Random(1), Slots(1)
    for some in range(0, KEYS, 500):
        slots.commit(
            {
                (encode_key(f"k{number}"), FIELD, "text", b""): (
                    encode_value(dice.randbytes(VALUE_BYTES // 2).hex()), 0, END,
                )
                for number in range(some, some + 500)
            }
        )  # fmt: skip
    return EpochState(slots.store, slots.ledger)


class Peak:
    """The most memory that a block took, of Python and of Arrow."""

    python = arrow = 0


@contextmanager
def peak_of() -> Iterator[Peak]:
    found, pool = Peak(), pa.proxy_memory_pool(pa.default_memory_pool())
    before = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        yield found
    finally:
        found.python = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        pa.set_memory_pool(before)
        found.arrow = pool.max_memory() or 0


def test_an_export_holds_a_part_of_the_state_in_memory(state: EpochState, tmp_path: Path) -> None:
    with peak_of() as peak:
        told = export.export(state, NAME, DiskStore(str(tmp_path)))
    # All of it at a time took 82 MB of Python and 74 MB of Arrow; now it takes 30 and 42.
    assert peak.python < 50 * MB and peak.arrow < 60 * MB, (peak.python, peak.arrow)
    table = pq.read_table(tmp_path)
    assert told.rows == table.num_rows == KEYS
    assert dict(zip(*table.select(["key", "text"]).to_pydict().values(), strict=True)) == {
        key: found["text"] for key, found in state.scan(NAME)
    }


def test_a_scan_holds_a_part_of_the_state_in_memory(state: EpochState) -> None:
    with peak_of() as peak:
        keys = sum(1 for _ in state.scan(NAME))
    assert keys == KEYS and peak.python < 25 * MB, peak.python  # it was 41 MB


def test_batches_and_files_end_by_their_bytes(
    state: EpochState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = list(export.StateTable(state, NAME).batches())
    most = epoch_state.BYTES_AT_ONCE + 2 * VALUE_BYTES
    assert len(batches) > 2 and all(batch.nbytes < most for batch in batches)
    monkeypatch.setattr(export, "BYTES_AT_ONCE", 2 * MB)
    monkeypatch.setattr(export, "BYTES_PER_FILE", 10 * MB)
    told = export.export(state, NAME, DiskStore(str(tmp_path)))
    sizes = [pq.read_metadata(tmp_path / name) for name in told.files]
    assert len(sizes) == 4 and sum(each.num_rows for each in sizes) == KEYS
    assert all(each.num_rows * VALUE_BYTES < 13 * MB for each in sizes)
    assert sizes[0].num_row_groups > 1
    assert pq.read_table(tmp_path).num_rows == KEYS


def test_an_export_of_nothing_and_one_that_ends_with_a_file_have_no_empty_file_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = Slots(1)
    empty = export.export(
        EpochState(slots.store, slots.ledger), NAME, DiskStore(str(tmp_path / "a"))
    )
    assert (empty.rows, len(empty.files)) == (0, 1)
    monkeypatch.setattr(export, "ROWS_PER_FILE", 2)
    monkeypatch.setattr(export, "ROWS_AT_ONCE", 1)
    slots.commit({(encode_key(n), FIELD, "n", b""): (encode_value(n), 0, END) for n in range(4)})
    found = export.export(
        EpochState(slots.store, slots.ledger), NAME, DiskStore(str(tmp_path / "b"))
    )
    assert (found.rows, len(found.files)) == (4, 2)
