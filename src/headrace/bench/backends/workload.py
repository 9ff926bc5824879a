"""The operations of S4's checkpoint benchmark, from a seed: writes and reads of keys of 1 KB.

Operations come in epochs, because that is how state is written here: first an epoch's reads, all
at once, then its writes, all made durable together. A write is one key's state made durable,
whatever it shares with others.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headrace.model.values.keys import encode_key, hash_key
from headrace.model.values.time import END
from headrace.state.backend import Hashes
from headrace.state.segment import FIELD, Cell

COMPUTATION = "S4"
FIELD_NAME = "state"
WRITE_SHARE = 0.9
FILLED = 1
"""The epoch that writes all keys."""


@dataclass(frozen=True)
class Operations:
    """How much is written and read."""

    keys: int
    operations: int = 10_000
    epoch_operations: int = 1_000
    value_bytes: int = 1_000
    seed: int = 1

    @property
    def epochs(self) -> int:
        return max(1, self.operations // self.epoch_operations)


@dataclass(frozen=True)
class Epoch:
    """The operations of one epoch."""

    number: int
    reads: list[int]
    """Indices of keys."""
    writes: list[int]


class KeySet:
    """All keys, with their bytes and hashes, and what each holds after an epoch wrote it."""

    def __init__(self, shape: Operations) -> None:
        self.shape = shape
        self.names = [encode_key(f"key-{i:09d}") for i in range(shape.keys)]
        self.hashes: Hashes = np.array([hash_key(name) for name in self.names], np.uint64)
        self._body = random.Random(shape.seed).randbytes(shape.value_bytes - 20)

    def value(self, index: int, epoch: int) -> bytes:
        """What a key holds after an epoch wrote it."""
        return b"%010d%010d" % (index, epoch) + self._body

    def cell(self, index: int, epoch: int) -> Cell:
        where, name = int(self.hashes[index]), self.names[index]
        return Cell(where, name, FIELD, FIELD_NAME, b"", self.value(index, epoch), epoch, END)


def epochs_of(shape: Operations, round_number: int = 0) -> Iterator[Epoch]:
    """The epochs to be timed in a round; the same for every store."""
    dice = random.Random(shape.seed + round_number)
    first = FILLED + 1 + round_number * shape.epochs
    for number in range(first, first + shape.epochs):
        kinds = [dice.random() < WRITE_SHARE for _ in range(shape.epoch_operations)]
        chosen = [dice.randrange(shape.keys) for _ in kinds]
        yield Epoch(
            number,
            [key for key, writes in zip(chosen, kinds, strict=True) if not writes],
            sorted({key for key, writes in zip(chosen, kinds, strict=True) if writes}),
        )
