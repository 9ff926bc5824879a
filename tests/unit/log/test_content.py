"""Files that commits name: missing, or only out of sight for a moment."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import CorruptCheckpoint, StoreError
from headrace.log.content import map_named
from headrace.log.identity import claim_identity
from headrace.store.memory import MemoryStore


class Unmounted(MemoryStore):
    """Is not mounted for the next looks."""

    looks = 0

    def _look(self) -> None:
        if self.looks:
            self.looks -= 1
            raise FileNotFoundError("not mounted")

    def map(self, name: str) -> pa.Buffer:
        self._look()
        return super().map(name)

    def read(self, name: str) -> bytes:
        self._look()
        return super().read(name)


def store_of(**files: bytes) -> Any:
    store = Unmounted()
    claim_identity(store, "orders")
    for name, data in files.items():
        store.write(name, data)
    return store


def test_a_file_that_is_missing_from_a_checkpoint_is_an_error() -> None:
    with pytest.raises(CorruptCheckpoint, match="missing from the checkpoint"):
        map_named(store_of(), "gone")


def test_a_file_is_out_of_sight_while_the_checkpoint_is_not_mounted() -> None:
    store = store_of(there=b"data")
    store.looks = 2
    with pytest.raises(StoreError, match="still mounted"):
        map_named(store, "there")


def test_a_checkpoint_that_came_back_meanwhile_still_has_its_file() -> None:
    store = store_of(there=b"data")
    store.looks = 1
    assert map_named(store, "there").to_pybytes() == b"data"
