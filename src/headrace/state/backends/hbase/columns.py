"""What lies where in a row of HBase: the names of columns, the bytes of cells, filters, conditions.

A cell's column is named so that the cells of a computation, of a key, of its fields and of one map
each lie together, and no name is the beginning of another cell's name.
"""

from __future__ import annotations

import struct
from typing import Any

from headrace.state.backend import AppliedCell
from headrace.state.backends.hbase.messages import Client_pb2, Comparator_pb2, Filter_pb2

FAMILY = b"h"
APPLIED, CELL, FLOOR, NAME, SYNCED, TOMBSTONE, WRITTEN = b"a", b"c", b"f", b"n", b"s", b"t", b"w"
"""The first byte of columns. `WRITTEN` is the sign of one who raises the mark, before he does; a
computation's `NAME` is in the first row only."""

EPOCH = struct.Struct(">Q")
HEAD = struct.Struct(">BqI")
"""Whether a cell is a tombstone, expires, version; the value follows."""
_WHERE = struct.Struct(">QI")
_FILTERS = "org.apache.hadoop.hbase.filter."


def computation_name(name: str) -> bytes:
    said = name.encode()
    return struct.pack(">H", len(said)) + said


def key_name(computation: str, where: int, key: bytes) -> bytes:
    return computation_name(computation) + _WHERE.pack(where, len(key)) + key


def cell_name(
    computation: str, where: int, key: bytes, kind: int, field: str, entry: bytes
) -> bytes:
    """A name for a cell: no name is the beginning of another's."""
    said = field.encode()
    head = key_name(computation, where, key)
    return b"%b%c%b%b%b" % (head, kind, struct.pack(">H", len(said)), said, entry)


def field_of(column: bytes, key: bytes, computation: str) -> tuple[str, bytes]:
    """(field, entry) of a column."""
    at = len(CELL) + len(computation_name(computation)) + _WHERE.size + len(key) + 1
    (size,) = struct.unpack_from(">H", column, at)
    return column[at + 2 : at + 2 + size].decode(), column[at + 2 + size :]


def beginning_with(prefix: bytes) -> tuple[bytes, bytes]:
    """The columns that begin with a prefix: from the first, up to the second."""
    stem = prefix.rstrip(b"\xff")
    return prefix, stem[:-1] + bytes([stem[-1] + 1])


def key_of(column: bytes, computation: str) -> tuple[int, bytes]:
    """(hash, key) of a column."""
    at = len(CELL) + len(computation_name(computation))
    where, size = _WHERE.unpack_from(column, at)
    return where, column[at + _WHERE.size : at + _WHERE.size + size]


def get_of(row: bytes, *columns: bytes) -> Any:
    """Asks for some columns of a row."""
    get = Client_pb2.Get(row=row)
    get.column.add(family=FAMILY, qualifier=columns)
    return get


def get_between(
    row: bytes, begin: bytes, end: bytes, *, limit: int = 0, values: bool = True
) -> Any:
    """Asks for the columns of a row from `begin` up to `end`, perhaps without their values."""
    get = Client_pb2.Get(row=row, store_limit=limit or None)
    get.column.add(family=FAMILY)
    get.filter.CopyFrom(_columns_between(begin, end, values=values))
    return get


def _columns_between(begin: bytes, end: bytes, *, values: bool) -> Any:
    """A filter: the columns from `begin` up to `end`, perhaps without their values."""
    between = Filter_pb2.ColumnRangeFilter(
        min_column=begin, min_column_inclusive=True, max_column=end, max_column_inclusive=False
    )
    chosen = _filter("ColumnRangeFilter", between)
    if values:
        return chosen
    names_only = _filter("KeyOnlyFilter", Filter_pb2.KeyOnlyFilter(len_as_val=False))
    both = Filter_pb2.FilterList(
        operator=Filter_pb2.FilterList.MUST_PASS_ALL, filters=[chosen, names_only]
    )
    return _filter("FilterList", both)


def _filter(name: str, message: Any) -> Any:
    return Filter_pb2.Filter(name=_FILTERS + name, serialized_filter=message.SerializeToString())


def condition_on(row: bytes, column: bytes, compare: Any, value: bytes) -> Any:
    """That `value` stands in this relation to a column of the row. False if it has none."""
    found = Client_pb2.Condition(row=row, family=FAMILY, qualifier=column, compare_type=compare)
    comparator = Comparator_pb2.BinaryComparator(
        comparable=Comparator_pb2.ByteArrayComparable(value=value)
    )
    found.comparator.name = _FILTERS + "BinaryComparator"
    found.comparator.serialized_comparator = comparator.SerializeToString()
    return found


def cell_of(found: Any) -> AppliedCell:
    gone, expires, version = HEAD.unpack_from(found.value)
    value = None if gone else found.value[HEAD.size :]
    return AppliedCell(found.timestamp // 2, value, expires, version)
