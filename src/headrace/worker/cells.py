"""Cells that a task writes: the one place that says what is stored, and how.

The rule, for records and for tables:

- What equals its initial value is not stored: where something was stored, a tombstone is written.
- What equals the stored value is not written again, except a field with a TTL whose life was
  renewed: that the same value lives longer is a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.model.state import Field
from headrace.model.values.time import END
from headrace.state.segment import ENTRY, FIELD, Cell

_make = Cell._make  # keywords and defaults cost as much as the rest


def is_written(field: Field, stored: bytes | None, data: bytes, *, renewed: bool) -> bool:
    """Whether a field's value is to be written; `renewed`: its TTL began again."""
    if stored is None:
        return data != field.initial_data
    return data != stored or (renewed and field.ttl_us is not None)


def field_cell(
    where: int, key: bytes, field: Field, data: bytes, time: int, expires: int, version: int
) -> Cell:
    """A field's value; a tombstone where it is the initial one. `where` is the key's hash."""
    gone = data == field.initial_data
    value = b"" if gone else data
    return _make((where, key, FIELD, field.name, b"", value, time, expires, version, gone))


def dropped_field_cell(where: int, key: bytes, name: str, time: int, version: int) -> Cell:
    """The tombstone of a field that a migration left behind."""
    return _make((where, key, FIELD, name, b"", b"", time, END, version, True))


def entry_cells(
    where: int,
    key: bytes,
    name: str,
    changes: Iterable[tuple[bytes, bytes | None, int]],
    time: int,
    version: int,
) -> list[Cell]:
    """The changed entries, (entry, value or None, expires), of one map of one key."""
    return [
        _make((where, key, ENTRY, name, entry, value or b"", time, expires, version, value is None))
        for entry, value, expires in changes
    ]


def entry_cells_of_keys(
    changes: Iterable[tuple[str, int, bytes, bytes | None]],
    hashes: Sequence[int],
    keys: Sequence[bytes],
    times: Sequence[int],
    version: int,
) -> list[Cell]:
    """The changed entries, (map, key's index, entry, value or None), of many keys."""
    return [
        _make((
            hashes[i], keys[i], ENTRY, name, entry, value or b"", times[i], END, version,
            value is None,
        ))
        for name, i, entry, value in changes
    ]  # fmt: skip


def timed_cell(
    where: int,
    kind: int,
    cell: tuple[bytes, str, bytes],
    value: bytes,
    timed: tuple[int, int] | None,
    version: int,
) -> Cell:
    """A timer, hold or waiting record; a tombstone where it was removed."""
    key, field, entry = cell
    time, hold = (0, END) if timed is None else timed
    return _make((where, key, kind, field, entry, value, time, hold, version, timed is None))
