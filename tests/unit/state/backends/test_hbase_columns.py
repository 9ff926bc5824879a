"""Names of columns in HBase: what lies together, and that no two cells share a name."""

from __future__ import annotations

import itertools

from headrace.model.values.keys import encode_key, hash_key
from headrace.state.backends.hbase.columns import (
    CELL,
    beginning_with,
    cell_name,
    computation_name,
    field_of,
    key_name,
    key_of,
)
from headrace.state.segment import ENTRY, FIELD

KEYS = [encode_key(key) for key in ("a", "ab", "\xff", 0, 2**62, ("a", "b"))]
NAMES = ("C", "CC", "a b", "é", "")


def test_cells_have_different_names_and_names_can_be_read_back() -> None:
    seen = {}
    for computation, key, kind, field, entry in itertools.product(
        NAMES, KEYS, (FIELD, ENTRY), NAMES, (b"", b"\0", b"\xff\xff", b"CC")
    ):
        column = CELL + cell_name(computation, hash_key(key), key, kind, field, entry)
        assert column not in seen
        seen[column] = True
        assert key_of(column, computation) == (hash_key(key), key)
        assert field_of(column, key, computation) == (field, entry)


def test_a_prefix_has_all_its_cells_and_no_others() -> None:
    cells = [
        (computation, key, CELL + cell_name(computation, hash_key(key), key, kind, "f", b"\xff"))
        for computation in NAMES
        for key in KEYS
        for kind in (FIELD, ENTRY)
    ]
    for computation in NAMES:
        low, high = beginning_with(CELL + computation_name(computation))
        found = {column for _, _, column in cells if low <= column < high}
        assert found == {column for name, _, column in cells if name == computation}
        for key in KEYS:
            low, high = beginning_with(CELL + key_name(computation, hash_key(key), key))
            found = {column for _, _, column in cells if low <= column < high}
            assert found == {c for name, of, c in cells if (name, of) == (computation, key)}


def test_a_prefix_of_the_highest_bytes_has_an_end() -> None:
    low, high = beginning_with(b"c\xff\xff")
    assert low <= b"c\xff\xff\xff\xff" < high and not high > b"d"
