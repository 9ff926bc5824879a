"""How many requests went to a store, and for what: an object store bills each of them.

A process counts what its own store objects ask. `counted_as` says what a piece of code works for;
without it, requests count as `PATH`: an epoch waits for them. Retries count too, because they are
billed too. Counts are for people and benchmarks: nothing in the engine may depend on them, and no
digest contains them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

PATH = "path"
LEASE = "lease"
CALLS = "calls"
MERGES = "merges"
UPKEEP = "upkeep"
PURPOSES = (PATH, LEASE, CALLS, MERGES, UPKEEP)

_purpose: ContextVar[str] = ContextVar("headrace-store-purpose", default=PATH)


class RequestCounts(msgspec.Struct, frozen=True):
    """Requests to a store, and the bytes that they carried."""

    puts: int = 0
    """Writes of all kinds: conditional puts, parts of a large file, copies on the server."""
    gets: int = 0
    lists: int = 0
    """Listings; one of many names takes several requests."""
    deletes: int = 0
    bytes_out: int = 0
    """Bytes that were sent to the store."""
    bytes_in: int = 0

    def __add__(self, other: RequestCounts) -> RequestCounts:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other))
        return RequestCounts(*(own + more for own, more in pairs))

    def __sub__(self, other: RequestCounts) -> RequestCounts:
        pairs = zip(msgspec.structs.astuple(self), msgspec.structs.astuple(other))
        return RequestCounts(*(own - less for own, less in pairs))

    @property
    def requests(self) -> int:
        """All requests together."""
        return self.puts + self.gets + self.lists + self.deletes


@contextmanager
def counted_as(purpose: str) -> Iterator[None]:
    """Counts the requests of this thread under a purpose, to any store, while it is open."""
    before = _purpose.set(purpose)
    try:
        yield
    finally:
        _purpose.reset(before)


class RequestCounter:
    """The counts of one store in one process. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, list[int]] = {}

    def put(self, size: int = 0, requests: int = 1) -> None:
        """Counts a write of some bytes."""
        self._count(0, requests, 4, size)

    def get(self, size: int = 0) -> None:
        """Counts a read that brought some bytes."""
        self._count(1, 1, 5, size)

    def list(self, names: int = 0, page: int = 1000) -> None:
        """Counts a listing that brought some names, so many to a request at most."""
        self._count(2, max(1, -(-names // page)), 5, 0)

    def delete(self) -> None:
        """Counts a delete."""
        self._count(3, 1, 5, 0)

    def so_far(self) -> dict[str, RequestCounts]:
        """The counts by purpose, since this process opened the store."""
        with self._lock:
            return {purpose: RequestCounts(*counts) for purpose, counts in self._counts.items()}

    def _count(self, kind: int, requests: int, carried: int, size: int) -> None:
        purpose = _purpose.get()
        with self._lock:
            counts = self._counts.get(purpose)
            if counts is None:
                counts = self._counts[purpose] = [0] * 6
            counts[kind] += requests
            counts[carried] += size
