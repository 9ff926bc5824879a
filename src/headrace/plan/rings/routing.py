"""Routes rows into parcels: extracts the key of each record, hashes it, and finds its slot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from headrace.errors import InvalidRecord
from headrace.model.key_spec import KeySpec
from headrace.model.values.arrow import python_list
from headrace.model.values.keys import encode_key
from headrace.model.values.rows import Rows
from headrace.plan.parcel import Parcel
from headrace.plan.rings.ring import Ring


class Unkeyed(msgspec.Struct):
    """A row whose key could not be extracted."""

    index: int
    error: BaseException


def keyed(rows: Rows, spec: KeySpec) -> tuple[Parcel, list[Unkeyed]]:
    """All rows with their keys; rows without a usable key are left out and listed."""
    if spec.everything:
        return Parcel([encode_key(())], np.zeros(len(rows), np.int32), rows), []
    if spec.columns and not spec.single and rows.columns is not None:
        several = _by_columns(rows, spec.columns)
        if several is not None:
            return several, []
    column = rows.column(spec.columns[0]) if spec.single and spec.columns else None
    if column is not None and column.null_count == 0:
        done = _by_column(rows, column, spec.columns[0] if spec.columns else "")
        if done is not None:
            return done, []
    return _by_value(rows, spec)


def route(parcel: Parcel, ring: Ring) -> Iterator[tuple[int, Parcel]]:
    """(slot, parcel) for every slot that gets records, with rows in their order."""
    if not len(parcel.rows):
        return
    if len(ring.slots) == 1:
        yield ring.slots[0], parcel
        return
    slot_of_key = ring.place(parcel.hashes())
    rows = parcel.sparing()
    slot_of_row = slot_of_key[parcel.codes]
    for slot in np.flatnonzero(np.bincount(slot_of_row)).tolist():
        mine = slot_of_key == slot
        renumbered = np.cumsum(mine) - 1
        indices = np.flatnonzero(slot_of_row == slot)
        keys = [parcel.keys[i] for i in np.flatnonzero(mine).tolist()]
        codes = renumbered[parcel.codes[indices]].astype(np.int32)
        yield slot, Parcel(keys, codes, rows.take(indices), parcel.key_column)


def _by_column(rows: Rows, column: pa.Array, name: str) -> Parcel | None:
    """The fast way: one Arrow column of text, integers or bytes, without invalid cells."""
    kind = column.type
    if not (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)
        or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        or pa.types.is_dictionary(kind)
    ):  # fmt: skip
        return None
    if pa.types.is_dictionary(kind):
        encoded = column
    else:
        encoded = rows.coded[name] if name in rows.coded else column.dictionary_encode()
    if encoded.indices.null_count:
        return None
    try:
        keys = [encode_key(key) for key in python_list(encoded.dictionary)]
    except InvalidRecord:
        return None  # the slow way finds the invalid rows
    if len(set(keys)) != len(keys):
        return None
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    return Parcel(keys, codes, rows, name, encoded.dictionary)


def _by_columns(rows: Rows, names: tuple[str, ...]) -> Parcel | None:
    """Keys of several columns: each distinct combination is encoded once."""
    columns = [rows.column(name) for name in names]
    if not len(rows) or any(c is None for c in columns):
        return None
    code = np.zeros(len(rows), np.int64)
    for column in columns:
        kind = column.type  # type: ignore[union-attr]
        if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_binary(kind)):
            return None
        encoded = column.dictionary_encode(null_encoding="encode")  # type: ignore[union-attr]
        # Combinations that occur are renumbered after each column, so nothing overflows.
        code = code * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
        code = np.unique(code, return_inverse=True)[1].astype(np.int64)
    firsts = np.zeros(int(code.max()) + 1, np.int64)
    firsts[code[::-1]] = np.arange(len(rows))[::-1]
    parts = [python_list(column.take(pa.array(firsts))) for column in columns]  # type: ignore[union-attr]
    try:
        keys = [encode_key(key) for key in zip(*parts, strict=True)]
    except InvalidRecord:
        return None  # the slow way finds the invalid rows
    return Parcel(keys, code.astype(np.int32), rows)


def _by_value(rows: Rows, spec: KeySpec) -> tuple[Parcel, list[Unkeyed]]:
    index: dict[bytes, int] = {}
    texts: dict[str, int] = {}
    codes = np.empty(len(rows), np.int32)
    bad: list[Unkeyed] = []
    extract = spec.extract
    for i, value in enumerate(rows.values()):
        try:
            key: Any = extract(value)
            if type(key) is str:
                # Text is looked up before it is encoded; other types are not, because 1 == True.
                code = texts.get(key)
                if code is None:
                    code = texts[key] = index.setdefault(encode_key(key), len(index))
            else:
                code = index.setdefault(encode_key(key), len(index))
        except Exception as error:
            bad.append(Unkeyed(i, error))
            code = -1
        codes[i] = code
    if bad:
        good = np.flatnonzero(codes >= 0)
        return Parcel(list(index), codes[good], rows.take(good)), bad
    return Parcel(list(index), codes, rows), bad
