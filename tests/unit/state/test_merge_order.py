"""Rows of a merge come in one order, whichever way it is found."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.state import merge_order
from headrace.state.compaction import _WIDE
from headrace.state.segment import ENTRY, FIELD, SCHEMA, TIMER, Cell

TEXT = st.sampled_from(["", "a", "b", "ab", "é", "\U0001f600", "\ufffd"])
KEYS = st.sampled_from([b"a", b"b", b"long key", b"a\0", b""])


def table_of(segments: list[set[tuple[int, bytes, int, str, bytes]]]) -> pa.Table:
    """The rows of segments, the newest first."""
    rows = [
        (*Cell(*identity, b"", 0), age)
        for age, segment in enumerate(segments)
        for identity in sorted(segment)
    ]
    columns = list(zip(*rows, strict=True)) or [()] * (len(SCHEMA) + 1)
    return pa.Table.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, _WIDE, strict=True)], schema=_WIDE
    )


def check(table: pa.Table) -> None:
    order, first = merge_order.order_of(table)
    expected, expected_first = merge_order._of_cells(table)
    np.testing.assert_array_equal(order, expected)
    np.testing.assert_array_equal(first, expected_first)


FIELDS = st.tuples(
    st.sampled_from([0, 7, 2**63, 2**64 - 1]), st.just(b""), st.just(FIELD), TEXT, st.just(b"")
)
"""Fields whose key follows from the hash."""
ANY = st.tuples(
    st.sampled_from([0, 1, 2**64 - 1]), KEYS, st.sampled_from([FIELD, ENTRY, TIMER]), TEXT, KEYS
)


@settings(deadline=None)
@given(st.lists(st.sets(FIELDS, max_size=12), max_size=6))
@example([])
@example([set()])
@example([{(7, b"k", FIELD, "a", b"")}])
def test_fields_come_in_the_order_of_all_cells(
    segments: list[set[tuple[int, bytes, int, str, bytes]]],
) -> None:
    named = [{(h, b"%d" % h, *rest) for h, _, *rest in segment} for segment in segments]
    table = table_of(named)  # type: ignore[arg-type]
    assert (merge_order._of_fields(table) is None) == (table.num_rows == 0)
    check(table)


@settings(deadline=None)
@given(st.lists(st.sets(ANY, max_size=12), max_size=6))
@example([{(1, b"a", FIELD, "n", b"")}, {(1, b"b", FIELD, "n", b"")}])
@example([{(1, b"a", FIELD, "n", b""), (1, b"b", FIELD, "m", b"")}])
def test_other_cells_and_keys_that_share_a_hash_come_in_order_too(
    segments: list[set[tuple[int, bytes, int, str, bytes]]],
) -> None:
    check(table_of(segments))
