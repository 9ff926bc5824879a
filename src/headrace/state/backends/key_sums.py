"""What the mark of the store `files` says of its keys: how many there are, and a sum over them.

The sum is of one number for each key and its highest stamp, so it does not depend on their order,
and an epoch changes it by the keys that it has written alone. With it `verify` finds a key that was
lost, and one of which only an older version is left. It costs no look at other keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import xxhash

from headrace.errors import CorruptCheckpoint

_MODULUS = 1 << 64


class KeySum(NamedTuple):
    """How many keys there are, and the sum over them."""

    keys: int = 0
    total: int = 0

    def with_key(self, name: int, stamp: int) -> KeySum:
        """With one more key, which has this stamp."""
        return KeySum(self.keys + 1, (self.total + _number(name, stamp)) % _MODULUS)

    def after(self, epoch: int, changed: Mapping[int, int]) -> KeySum:
        """After an epoch that has written keys: name -> its stamp before, 0 if none."""
        keys, total = self
        for name, before in changed.items():
            total += _number(name, epoch) - (_number(name, before) if before else 0)
            keys += not before
        return KeySum(keys, total % _MODULUS)

    def encoded(self) -> bytes:
        """As a mark has it; its last number is a checksum."""
        said = b"%d %016x" % self
        return b"%b %b" % (said, xxhash.xxh3_64_hexdigest(said).encode())


def decoded(data: bytes, path: str) -> KeySum | None:
    """What a mark says; None if it is empty, because its keys were never counted."""
    if not data:
        return None
    said, _, check = data.rpartition(b" ")
    if xxhash.xxh3_64_hexdigest(said).encode() != check:
        raise CorruptCheckpoint(
            f"{path} does not have the checksum that is in it: put back a copy of it; if there is "
            "none, make it empty, and the keys that are there are counted anew"
        )
    keys, _, total = said.partition(b" ")
    return KeySum(int(keys), int(total, 16))


def difference(expected: KeySum, found: KeySum, epoch: int) -> str:
    """What is wrong with the keys that are there, in words; "" if nothing is."""
    if found == expected:
        return ""
    written = f"{expected.keys:,} keys were written up to epoch {epoch}"
    if found.keys != expected.keys:
        return f"{written}, and {found.keys:,} are there: put back a copy of the store"
    return (
        f"{written}, and some of them are there as an older version: put back a copy of the store"
    )


def name_of(computation: str, stem: str) -> int:
    """A number for a key of a computation."""
    return xxhash.xxh3_64_intdigest(f"{computation}/{stem}".encode())


def _number(name: int, stamp: int) -> int:
    return xxhash.xxh3_64_intdigest(b"%d" % stamp, seed=name)
