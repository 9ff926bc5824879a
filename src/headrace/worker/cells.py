"""The cells that a task writes. Only this module decides what is stored, and how.

The rules are the same for records and for tables:

- A value that equals its initial value is not stored. If an older value is stored, a tombstone is
  written.
- A value that equals the stored value is not written again. The exception is a field whose TTL
  was renewed: the later end of its TTL is a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.model.state import Field
from headrace.model.values.time import END
from headrace.state.segment import ENTRY, FIELD, Cell

_make = Cell._make  # keyword arguments and defaults would double the cost


def is_written(field: Field, stored: bytes | None, data: bytes, *, renewed: bool) -> bool:
    """Whether a field's value must be written. `renewed`: its TTL was renewed."""
    if stored is None:
        return data != field.initial_data
    return data != stored or (renewed and field.ttl_us is not None)


def field_cell(
    where: int, key: bytes, field: Field, data: bytes, time: int, expires: int, version: int
) -> Cell:
    """The cell of a field: a tombstone for the initial value. `where` is the key's hash."""
    gone = data == field.initial_data
    value = b"" if gone else data
    return _make((where, key, FIELD, field.name, b"", value, time, expires, version, gone))


def dropped_field_cell(where: int, key: bytes, name: str, time: int, version: int) -> Cell:
    """The tombstone of a field that does not exist after a migration."""
    return _make((where, key, FIELD, name, b"", b"", time, END, version, True))


def entry_cells(
    where: int,
    key: bytes,
    name: str,
    changes: Iterable[tuple[bytes, bytes | None, int]],
    time: int,
    version: int,
) -> list[Cell]:
    """The cells of changed entries, (entry, value or None, expires), of one map of one key."""
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
    """The cells of changed entries, (map, key's index, entry, value or None), of many keys."""
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
    """The cell of a timer, hold or waiting record; a tombstone if it was removed."""
    key, field, entry = cell
    time, hold = (0, END) if timed is None else timed
    return _make((where, key, kind, field, entry, value, time, hold, version, timed is None))
