"""The record of what was read to its end: exact, sorted, merged."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import CorruptCheckpoint, IncompatibleState
from headrace.log.content import digest_of
from headrace.log.identity import claim_identity
from headrace.log.paths import content_name
from headrace.model.source import Seen
from headrace.state import record
from headrace.state.record import FinishedFile, encode_record, table_of
from headrace.store.memory import MemoryStore

NAMES = st.text("ab\0é/", max_size=3)
PARTS = st.tuples(NAMES, NAMES)
SEEN = st.one_of(
    st.none(), st.builds(Seen, st.integers(0, 9), st.integers(0, 2**62), whole=st.booleans())
)


def opened(*tables: pa.Table) -> FinishedFile:
    data, _ = encode_record(tables)
    return FinishedFile(
        f"read/s/{content_name(1, 'read', digest_of(data), '.arrow')}", pa.py_buffer(data)
    )


@settings(max_examples=100, deadline=None)
@given(
    layers=st.lists(st.dictionaries(PARTS, SEEN, max_size=8), min_size=1, max_size=4),
    others=st.lists(PARTS, max_size=5),
    few=st.booleans(),
)
def test_it_finds_exactly_what_was_put_and_the_newest_counts(
    layers: list[dict[tuple[str, str], Seen | None]], others: list[tuple[str, str]], few: bool
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        if few:  # many keys share a hash, and only the key decides
            real = record.xxhash.xxh3_64_intdigest
            patched.setattr(record.xxhash, "xxh3_64_intdigest", lambda key: real(key) % 3)
        merged = opened(*(table_of(layer) for layer in layers))
        expected: dict[tuple[str, str], Seen | None] = {}
        for layer in reversed(layers):
            expected |= layer
        assert merged.find([*expected, *others]) == {
            part: expected[part] for part in [*expected, *others] if part in expected
        }
        assert merged.between(0, 2**64) == expected
        assert merged.table.num_rows == len(expected)


def test_every_row_has_its_turn() -> None:
    rows = {(f"split {i}", ""): Seen(i) for i in range(50)}
    whole = opened(table_of(rows))
    low, found, turns = 0, {}, 0
    while low < 2**64:
        high = whole.after(low, 7)
        some = whole.between(low, high)
        assert some and not found.keys() & some.keys()
        found |= some
        low, turns = high, turns + 1
    assert found == rows and turns == 8


def test_a_damaged_or_foreign_file_is_refused() -> None:
    data, rows = encode_record([table_of({("a", ""): Seen(1)})])
    assert rows == 1
    name = f"read/s/{content_name(1, 'read', digest_of(data), '.arrow')}"
    with pytest.raises(CorruptCheckpoint, match="is damaged"):
        FinishedFile(name, pa.py_buffer(data[:-1]))
    for metadata, error in (
        ({}, CorruptCheckpoint),
        ({b"headrace": b"segment", b"format": b"1"}, CorruptCheckpoint),
        ({b"headrace": b"record", b"format": b"2"}, IncompatibleState),
    ):
        out = pa.BufferOutputStream()
        with pa.ipc.new_file(out, record.SCHEMA.with_metadata(metadata)):
            pass
        other = out.getvalue().to_pybytes()
        with pytest.raises(error):
            FinishedFile(
                f"read/s/{content_name(1, 'read', digest_of(other), '.arrow')}", pa.py_buffer(other)
            )
    store = MemoryStore()
    claim_identity(store, "orders")
    with pytest.raises(CorruptCheckpoint, match="is missing from the checkpoint"):
        FinishedFile.open(store, name)
