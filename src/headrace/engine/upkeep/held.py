"""Deltas on the disks of executors: who can reach them, and what may be asked of them (M2).

Where a checkpoint is a URL, the driver cannot read what is only written. So fragments are made
where the deltas lie, one unit of work per slot, and whether a delta is still there is asked there,
too. The Spark substrate and the simulator carry this out; what a task does is here.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from headrace.engine.upkeep.fragments import Fragment, FragmentJob, make_fragment
from headrace.errors import EpochFailed, HeadraceError, StoreError, by_name
from headrace.log.holding import HoldingStore
from headrace.plan.decisions.transient import is_outage
from headrace.store.store import Store

TURNS_MAX = 8
"""How many jobs make the fragments of a checkpoint, one after the other, at most."""


class HeldDeltas(Protocol):
    """The disks of executors, as the driver reaches them: through tasks."""

    @property
    def moves(self) -> bool:
        """Whether slots are about to go to other executors, or may run on any: until they stay,
        deltas are to be durable at once (M6)."""

    def make(self, jobs: Sequence[FragmentJob]) -> Sequence[Fragment | Exception]:
        """Makes fragments where their deltas lie; for each job a fragment, or why there is none."""

    def missing(self, segments: Mapping[int, Sequence[str]]) -> set[str]:
        """Which of these deltas are neither where the task of their slot runs nor in the store;
        slot -> names."""


class Made(NamedTuple):
    """What a task has made of a job: a fragment, or an error."""

    number: int
    """The job, as its driver counts them."""
    fragment: Fragment | None
    error: str = ""
    message: str = ""

    def outcome(self, job: FragmentJob) -> Fragment | Exception:
        """The fragment of this job, or the error."""
        if self.fragment is not None:
            return self.fragment._replace(job=job)
        return by_name(self.error)(self.message)


def make(store: Store, number: int, job: FragmentJob) -> Made:
    """One job in a task. An error is an answer, because a task that fails is tried again for ever.

    Too little memory fails the task: there may be more elsewhere, or later.
    """
    try:
        fragment = make_fragment(store, job)
    except HeadraceError as error:
        return Made(number, None, type(error).__name__, str(error))
    except OSError as error:
        return Made(number, None, StoreError.__name__, f"{type(error).__name__}: {error}")
    except MemoryError:
        raise
    except Exception as error:
        what = f"the fragment of {job.computation}/{job.slot} could not be made"
        kind = StoreError if is_outage(error) else EpochFailed
        return Made(number, None, kind.__name__, f"{what}: {type(error).__name__}: {error}")
    return Made(number, fragment)


def missing(store: Store, segments: Iterable[str]) -> list[str]:
    """Which deltas a task reaches neither on the disk of its executor nor in the store."""
    found: list[str] = []
    for segment in segments:
        if isinstance(store, HoldingStore) and store.held_copy(segment) is not None:
            continue
        try:
            store.stat(segment)
        except FileNotFoundError:
            found.append(segment)
    return found


def turns(jobs: Sequence[FragmentJob], tasks: int) -> list[list[int]]:
    """The numbers of jobs, in turns: as few as possible of each task in one, but not too many
    turns."""
    of_task: dict[int, list[int]] = {}
    for number, job in enumerate(jobs):
        of_task.setdefault(job.slot % tasks, []).append(number)
    most = max(map(len, of_task.values()), default=0)
    count = min(most, TURNS_MAX)
    found: list[list[int]] = [[] for _ in range(count)]
    for numbers in of_task.values():
        for at, number in enumerate(numbers):
            found[at * count // most].append(number)
    return found


def outcomes(
    jobs: Sequence[FragmentJob], told: Iterable[bytes], *, silent: StoreError | None = None
) -> list[Fragment | Exception]:
    """For each job what the tasks have said of it; one that is not heard of failed for a while,
    because of `silent`."""
    silent = silent or StoreError("the task that makes a fragment has not answered")
    found: list[Fragment | Exception] = [silent for _ in jobs]
    for data in told:
        made: Made = pickle.loads(data)
        found[made.number] = made.outcome(jobs[made.number])
    return found
