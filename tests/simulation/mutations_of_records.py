"""Deliberate bugs in the record of what was read to its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from headrace.engine.driver import finished_input
from headrace.engine.driver.driver import Driver
from headrace.engine.driver.finished_input import FinishedSplits
from headrace.plan.ledger import Ledger

__all__ = [
    "collection_forgets_the_record",
    "merged_records_forget",
    "records_come_after_the_commit",
    "records_are_not_looked_into",
]


class _Later:
    """A store that keeps what is written to it until somebody asks for it."""

    def __init__(self, below: Any) -> None:
        self._below = below
        self.kept: dict[str, bytes] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def write(self, name: str, data: bytes) -> None:
        self.kept[name] = data

    def map(self, name: str) -> pa.Buffer:
        return pa.py_buffer(self.kept[name]) if name in self.kept else self._below.map(name)


@contextmanager
def records_come_after_the_commit() -> Iterator[None]:
    """B1: a commit names a file of the record that is written only afterwards."""
    seal, commit = FinishedSplits.seal, Driver._commit

    def later(self: FinishedSplits, epoch: int, ledger: Any) -> Any:
        store = self._store
        self._store = self.later = _Later(store)  # type: ignore[assignment, attr-defined]
        try:
            return seal(self, epoch, ledger)
        finally:
            self._store = store

    def and_then(self: Driver, plan: Any, done: Any, riders: Any) -> None:
        commit(self, plan, done, riders)
        for name, data in self._injectors._record.later.kept.items():  # type: ignore[attr-defined]
            self.store.write(name, data)

    with patch.object(FinishedSplits, "seal", later), patch.object(Driver, "_commit", and_then):
        yield


def merged_records_forget() -> AbstractContextManager[Any]:
    """A7: where files of the record are merged, the rows of the older ones are lost."""
    encode = finished_input.encode_record
    return patch.object(finished_input, "encode_record", lambda tables: encode(tables[:1]))


def records_are_not_looked_into() -> AbstractContextManager[Any]:
    """A7: a split that has left the ledger is taken for a new one."""
    return patch.object(FinishedSplits, "find", lambda self, ledger, stream, parts: {})


def collection_forgets_the_record() -> AbstractContextManager[Any]:
    """C8: files of the record are collected though the ledger names them."""
    return patch.object(Ledger, "records", lambda self: set())
