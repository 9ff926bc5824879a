"""Random numbers that are functions of (seed, event, field), in columns.

Any range of events can be made alone and again: nothing depends on the events before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

Ints = np.ndarray[Any, np.dtype[np.int64]]
Words = np.ndarray[Any, np.dtype[np.uint64]]
Floats = np.ndarray[Any, np.dtype[np.float64]]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz", np.uint8)


class EventDice:
    """The random numbers of some events. Every field has a number, and so numbers of its own."""

    def __init__(self, seed: int, events: Ints) -> None:
        with np.errstate(over="ignore"):
            self._base = _mixed(events.astype(np.uint64) * _STEP + _mixed(_word(seed)))

    def __len__(self) -> int:
        return len(self._base)

    def words(self, field: int) -> Words:
        """64 random bits per event."""
        return _mixed(self._base ^ _mixed(_word(field + 1)))

    def below(self, field: int, limit: Ints | int) -> Ints:
        """A whole number from 0 to below `limit`, which may differ from event to event."""
        high = self.words(field) >> np.uint64(33)
        chosen = high.astype(np.int64) * np.asarray(limit, np.int64) >> np.int64(31)
        return np.asarray(chosen, np.int64)

    def share(self, field: int) -> Floats:
        """A number from 0 to below 1."""
        return (self.words(field) >> np.uint64(11)).astype(np.float64) / 2.0**53

    def text(self, field: int, lengths: Ints) -> pa.Array:
        """Lower-case letters: a text of its own length for each event."""
        ends = np.cumsum(lengths)
        owners = np.repeat(np.arange(len(lengths)), lengths)
        places = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)
        # A word gives the letters of eight places.
        count = int(lengths.max(initial=0)) // 8 + 1
        words = np.stack([self.words(field * 1000 + n) for n in range(count)], axis=1)
        raw = words.view(np.uint8).reshape(len(lengths), count * 8)[owners, places]
        letters = _LETTERS[(raw.astype(np.uint16) * 26) >> 8]
        offsets = np.concatenate([[0], ends]).astype(np.int32)
        return pa.StringArray.from_buffers(
            len(lengths), pa.py_buffer(offsets), pa.py_buffer(letters)
        )


def _word(number: int) -> Words:
    return np.array([number % 2**64], np.uint64)


def _mixed(words: Words) -> Words:
    """The finaliser of splitmix64."""
    with np.errstate(over="ignore"):
        z = words + _STEP
        z = (z ^ (z >> np.uint64(30))) * _FIRST
        z = (z ^ (z >> np.uint64(27))) * _SECOND
        return z ^ (z >> np.uint64(31))
