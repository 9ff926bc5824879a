"""Who makes the fragments of a checkpoint: the driver's thread, or tasks where the deltas lie."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import Protocol

from headrace.engine.upkeep.fragments import Fragment, FragmentJob, make_fragment
from headrace.engine.upkeep.held import HeldDeltas
from headrace.store.store import Store

_AHEAD = 2
"""How many fragments are handed to the driver's thread before the first of them is taken."""


class FragmentMaker(Protocol):
    """Makes fragments, beside the epochs or at once."""

    @property
    def ahead(self) -> int | None:
        """How many fragments may be under way; None: any number."""

    @property
    def at_once(self) -> bool:
        """Whether all fragments of a checkpoint are begun together."""

    def begin(self, jobs: Sequence[FragmentJob]) -> list[Future[Fragment]]: ...
    def close(self) -> None: ...


def maker_of(store: Store, held: HeldDeltas | None, *, background: bool) -> FragmentMaker:
    """`held`: the disks of executors, if deltas lie there. With `background=False` fragments are
    made in the calling thread, for tests."""
    pool = store.system.executor("headrace-keeper") if background else None
    return DriversFragments(store, pool) if held is None else TasksFragments(held, pool)


class DriversFragments:
    """One after the other, in a thread of the driver, which reads the deltas itself."""

    at_once = False

    def __init__(self, store: Store, pool: Executor | None) -> None:
        self._store, self._pool = store, pool
        self.ahead = _AHEAD if pool is not None else None

    def begin(self, jobs: Sequence[FragmentJob]) -> list[Future[Fragment]]:
        """Their errors are raised when they are taken."""
        if self._pool is not None:
            return [self._pool.submit(make_fragment, self._store, job) for job in jobs]
        found: list[Future[Fragment]] = []
        for job in jobs:
            found.append(Future())
            try:
                found[-1].set_result(make_fragment(self._store, job))
            except Exception as error:
                found[-1].set_exception(error)
        return found

    def close(self) -> None:
        """Waits for the fragment that is being written."""
        _close(self._pool)


class TasksFragments:
    """Together, each in the task of its slot, which finds the deltas on its executor's disk."""

    at_once, ahead = True, None

    def __init__(self, held: HeldDeltas, pool: Executor | None) -> None:
        self._held, self._pool = held, pool

    def begin(self, jobs: Sequence[FragmentJob]) -> list[Future[Fragment]]:
        """Their errors are raised when they are taken."""
        if not jobs:
            return []
        found: list[Future[Fragment]] = [Future() for _ in jobs]
        for each in found:
            each.set_running_or_notify_cancel()
        if self._pool is None:
            self._make(jobs, found)
        else:
            self._pool.submit(self._make, jobs, found)
        return found

    def _make(self, jobs: Sequence[FragmentJob], futures: Sequence[Future[Fragment]]) -> None:
        try:
            made = self._held.make(jobs)
        except Exception as error:
            made = [error for _ in jobs]
        for future, each in zip(futures, made, strict=True):
            if isinstance(each, Exception):
                future.set_exception(each)
            else:
                future.set_result(each)

    def close(self) -> None:
        """Waits for the job that is running; one that has not begun is forgotten."""
        _close(self._pool)


def _close(pool: Executor | None) -> None:
    if pool is not None:
        pool.shutdown(wait=True, cancel_futures=True)
