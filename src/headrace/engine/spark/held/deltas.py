"""The driver's side: jobs over the anchors, so that each task runs where its slots' deltas lie.

They run beside the epochs, from a thread of the keeper. Nothing depends on where a task really
runs: one that does not find a delta says so, and then it is tried again, or made again.
"""

from __future__ import annotations

import pickle
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.engine.spark.deadline import Deadline
from headrace.engine.spark.held.functions import LOOK, MAKE, SCHEMA, HeldFunction
from headrace.engine.upkeep.fragments import Fragment, FragmentJob
from headrace.engine.upkeep.held import outcomes, turns
from headrace.errors import StoreError
from headrace.plan.decisions.transient import refused_in
from headrace.plan.progress import StoreUse

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

Numbers = Callable[[], tuple["DataFrame", int]]


class SparkHeldDeltas:
    """What executors hold, reached through Spark jobs."""

    def __init__(
        self,
        context: SparkContext,
        numbers: Numbers,
        location: str,
        near_bytes: int,
        moves: Callable[[], bool],
        note: Callable[[str, StoreUse], None],
        epoch_timeout_s: float | None,
    ) -> None:
        """`numbers` gives a frame with a partition per task, each where its slots are, and how many
        there are; `moves` says whether slots stay there. `note` takes what a process has asked of
        the store."""
        self._numbers, self._moves, self._note = numbers, moves, note
        self._location, self._near_bytes = location, near_bytes
        self._deadline = Deadline(context, epoch_timeout_s)

    @property
    def moves(self) -> bool:
        """Whether slots are about to go to other executors, or may run on any."""
        return self._moves()

    def make(self, jobs: Sequence[FragmentJob]) -> Sequence[Fragment | Exception]:
        """Makes fragments where their deltas lie; for each job a fragment, or why there is none.

        A task that makes all fragments of its slots would keep its processor from the epochs for as
        long, and Spark would then run these elsewhere: so there are several jobs, in turn.
        """
        told: list[bytes] = []
        try:
            for turn in turns(jobs, self._numbers()[1]):
                told += self._run(MAKE, [(jobs[n].slot, (n, jobs[n])) for n in turn])
        except Exception as error:  # Spark and py4j raise different types.
            return outcomes(jobs, told, silent=self._outage(error))
        return outcomes(jobs, told)

    def missing(self, segments: Mapping[int, Sequence[str]]) -> set[str]:
        """Which of these deltas are neither where the task of their slot runs nor in the store."""
        asked = [(slot, name) for slot, names in segments.items() for name in names]
        try:
            told = self._run(LOOK, asked)
        except Exception as error:
            raise self._outage(error) from error
        return {name for data in told for name in pickle.loads(data)}

    def _run(self, what: str, work: Sequence[tuple[int, Any]]) -> list[bytes]:
        numbers, tasks = self._numbers()
        parts: dict[int, list[Any]] = defaultdict(list)
        for slot, each in work:
            parts[slot % tasks].append(each)  # as slots are dealt to tasks (J10)
        packed = {task: pickle.dumps(part) for task, part in parts.items()}
        function = HeldFunction(self._location, self._near_bytes, what, packed)
        began = time.monotonic()
        with self._deadline.watch():
            rows = numbers.mapInArrow(function, SCHEMA).collect()
        self._deadline.took(time.monotonic() - began)
        found: list[bytes] = []
        for told, process, use in rows:
            if process:
                self._note(process, msgspec.msgpack.decode(use, type=StoreUse))
            else:
                found.append(bytes(told))
        return found

    def _outage(self, error: Exception) -> StoreError:
        """A job that failed is tried again: an epoch finds out if Spark itself has ended."""
        text = f"{type(error).__name__}: {error}"
        return refused_in(text) or StoreError(f"no task could look at held state: {text[:2000]}")
