"""The files of the store `files`: what they hold, and what their names say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import xxhash

from headrace.model.values.keys import hash_key
from headrace.state.backend import AppliedCell

DEAD = ".dead"
"""How the name of a version with tombstones ends."""

CellPlace = tuple[int, str, bytes]
"""(kind, field, entry)"""
Cells = dict[CellPlace, AppliedCell]

StoredRow = tuple[int, str, bytes, int, bytes | None, int, int]
"""kind, field, entry, stamp, value or None if it was deleted, expires, version."""


class KeyFile(msgspec.Struct, array_like=True):
    """What a file holds."""

    key: bytes
    cells: list[StoredRow]
    before: int = 0
    """The highest stamp that the key had before this version's; 0 if it was not there."""


class Version(NamedTuple):
    """A version of a key: its name in parts, and what its file says of the version before."""

    name: str
    stamp: int
    dead: bool
    before: int = 0


def stem_of(key: bytes) -> str:
    """How the names of a key's versions begin: two keys with one hash have different digests."""
    return f"{hash_key(key):016x}-{xxhash.xxh3_128_hexdigest(key)}"


def parsed(name: str) -> Version:
    """What the name of a version says."""
    dead = name.endswith(DEAD)
    return Version(name, int(name.removesuffix(DEAD).split(".")[1]), dead)


def stamp_before(versions: Iterable[Version], epoch: int) -> int:
    """The highest stamp that a key had before an epoch, by all its versions; 0 if it had none."""
    return max((v.stamp if v.stamp < epoch else v.before for v in versions), default=0)


def stamps_after(epoch: int, names: Iterable[str], before: Callable[[str], int]) -> dict[str, int]:
    """Of each key the stamp that it had after an epoch, by the names of its versions.

    `before` reads what a version of the next epoch says of the one before it. A key that was not
    there is left out.
    """
    found: dict[str, int] = {}
    for version in map(parsed, names):
        stamp = version.stamp if version.stamp <= epoch else before(version.name)
        stem = version.name.partition(".")[0]
        if stamp:
            found[stem] = max(found.get(stem, 0), stamp)
    return found


def joined(versions: Iterable[Sequence[StoredRow]]) -> Cells:
    """Of each cell the one with the highest stamp."""
    found: Cells = {}
    for rows in versions:
        for kind, field, entry, stamp, value, expires, version in rows:
            cell, place = AppliedCell(stamp, value, expires, version), (kind, field, entry)
            before = found.get(place)
            # Only `drop` writes a tombstone with the stamp of a value.
            if before is None or (before.stamp, before.value is None) < (stamp, value is None):
                found[place] = cell
    return found
