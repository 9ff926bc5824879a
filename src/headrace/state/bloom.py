"""A Bloom filter over key hashes, because most segments do not have the key of a lookup.

A filter belongs to a segment, not to a slot, because it cannot be split. With about ten bits and
four probes per key, about one lookup in a hundred is a false positive.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_BITS_PER_KEY = 10
_PROBES = 4

Words = np.ndarray[Any, np.dtype[np.uint64]]


class Bloom:
    """A Bloom filter: "no" is certain, "yes" is only probable."""

    __slots__ = ("_mask", "_words")

    def __init__(self, words: Words) -> None:
        self._words = words
        self._mask = np.uint64(len(words) * 64 - 1)

    @staticmethod
    def of(hashes: Words) -> Bloom:
        """A filter of these hashes."""
        bits = 64
        while bits < len(hashes) * _BITS_PER_KEY:
            bits *= 2
        bloom = Bloom(np.zeros(bits // 64, np.uint64))
        for bit in bloom._probes(hashes):
            np.bitwise_or.at(
                bloom._words, bit >> np.uint64(6), np.uint64(1) << (bit & np.uint64(63))
            )
        return bloom

    def may_have(self, hashes: Words) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """A mask of the hashes that may be in the segment."""
        found = np.ones(len(hashes), np.bool_)
        for bit in self._probes(hashes):
            word = self._words[bit >> np.uint64(6)]
            found &= ((word >> (bit & np.uint64(63))) & np.uint64(1)).astype(np.bool_)
        return found

    def _probes(self, hashes: Words) -> list[Words]:
        # The key hash is uniform, so rotations of it serve as further hash functions.
        step = (hashes >> np.uint64(33)) | np.uint64(1)
        with np.errstate(over="ignore"):
            return [(hashes + step * np.uint64(i)) & self._mask for i in range(_PROBES)]

    @property
    def words(self) -> int:
        """How many words of 64 bits it has."""
        return len(self._words)

    def to_bytes(self) -> bytes:
        """The filter as bytes, for a segment's file."""
        return self._words.astype("<u8").tobytes()

    @staticmethod
    def from_bytes(data: bytes) -> Bloom:
        """A filter from the bytes in a segment's metadata."""
        return Bloom(np.frombuffer(data, "<u8").astype(np.uint64, copy=False))
