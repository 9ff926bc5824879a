"""The identity of a checkpoint: one for all who begin it, whatever the answers of their puts."""

from __future__ import annotations

import pytest

from headrace.errors import IncompatibleState, StoreError
from headrace.log import paths
from headrace.log.identity import claim_identity, read_identity, require_present
from headrace.store.memory import MemoryStore


class Doubtful(MemoryStore):
    """A put fails, before or after it has arrived."""

    arrives = True
    synced = 0

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if self.arrives:
            super().put_if_absent(name, data)
        raise StoreError("no answer within 30 s")

    def sync(self, directory: str) -> None:
        self.synced += 1


def test_a_put_that_arrived_without_an_answer_counts() -> None:
    store = Doubtful()
    found = claim_identity(store, "orders")
    assert found == read_identity(store) and store.synced == 1
    assert claim_identity(store, "orders") == found


def test_a_put_that_did_not_arrive_is_an_error_and_may_be_tried_again() -> None:
    store = Doubtful()
    store.arrives = False
    with pytest.raises(StoreError, match="no answer"):
        claim_identity(store, "orders")
    store.arrives = True
    assert claim_identity(store, "orders").pipeline == "orders"


def test_whoever_is_second_takes_the_identity_of_the_first() -> None:
    class Late(MemoryStore):
        """Another driver begins the checkpoint between the look and the put."""

        def put_if_absent(self, name: str, data: bytes) -> bool:
            if name == paths.IDENTITY and name not in self.files:
                other = MemoryStore()
                claim_identity(other, "orders")
                self.files.update(other.files)
            return super().put_if_absent(name, data)

    store = Late()
    assert claim_identity(store, "orders") == read_identity(store)
    with pytest.raises(IncompatibleState, match="belongs to pipeline 'orders'"):
        claim_identity(store, "payments")


def test_a_checkpoint_that_is_not_there_damaged_or_another_is_a_passing_error() -> None:
    store = MemoryStore()
    with pytest.raises(StoreError, match="is not there"):
        require_present(store)
    mine = claim_identity(store, "orders")
    require_present(store)
    require_present(store, mine.id)
    with pytest.raises(StoreError, match="is not there"):
        require_present(store, "another")
    store.files[paths.IDENTITY] = b"half"
    with pytest.raises(StoreError, match="cannot be read"):
        require_present(store, mine.id)
    del store.files[paths.IDENTITY]
    store.write(f"{paths.LOG}/000000/{1:020d}", b"")
    with pytest.raises(StoreError, match="there is a log but no IDENTITY"):
        require_present(store)
