"""What `sinks.postgres` refuses before the commit; no server is asked."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace import sinks
from headrace.errors import SinkError
from headrace.model.values.rows import Rows

pytest.importorskip("psycopg", reason="postgres: psycopg is not installed")

TEXTS = pa.map_(pa.string(), pa.string())
INSIDE = pa.map_(pa.string(), pa.list_(pa.struct([("a", pa.string_view())])))
WITHOUT_NULLS = pa.MapArray.from_arrays(
    pa.array([0, 1, 2], pa.int32()), pa.array(["a\0", "b"]), pa.array(["x", "y"])
)


def encode(cells: pa.Array) -> bytes:
    sink = sinks.postgres("postgresql://nowhere/db", "t", schema=pa.schema([("x", cells.type)]))
    batch = pa.RecordBatch.from_arrays([cells], names=["x"])
    return sink.encode(Rows([0] * len(cells), columns=batch))


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([None, [("a", "b\0")]], TEXTS),
        pa.array([None, [("a\0", "b")]], TEXTS),
        pa.array([[("a", "b")], [("a", "b\0")]], TEXTS).slice(1),
        pa.array([[("a", [None, {"a": "b\0"}])]], INSIDE),
        pa.array([[[("a", "b\0")]]], pa.list_(TEXTS)),
    ],
)
def test_nul_inside_of_a_map_is_refused(cells: pa.Array) -> None:
    with pytest.raises(SinkError, match="column 'x' has text with the character NUL"):
        encode(cells)


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([None, [("a", "b"), ("c", None)], []], TEXTS),
        WITHOUT_NULLS.slice(1),
        pa.MapArray.from_arrays(
            WITHOUT_NULLS.offsets,
            WITHOUT_NULLS.keys,
            WITHOUT_NULLS.items,
            mask=pa.array([True, False]),
        ),
        pa.array([[("a", [None, {"a": None}])]], INSIDE),
    ],
)
def test_nul_that_no_row_has_is_not_refused(cells: pa.Array) -> None:
    assert encode(cells)
