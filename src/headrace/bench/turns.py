"""Pipelines that take turns, epoch by epoch, in one Spark session.

The speed of a shared machine can change by a third from one minute to the next. Two pipelines that
differ by a few percent are therefore not compared as two runs one after the other. Here each
pipeline runs one epoch, then the next pipeline runs one, so that every epoch is compared with one
that ran a second earlier or later. Each second pass goes in the opposite direction: no pipeline
always follows the same one. Two epochs never run at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, cycle
from threading import Condition, Thread
from time import perf_counter
from typing import NamedTuple

import psutil

from headrace.errors import HeadraceError

Pass = Callable[[], None]
"""Called by a pipeline at the end of each of its epochs."""


class Turn(NamedTuple):
    """What one epoch took: time, and processor time of this process and all that it started."""

    ms: float
    cpu_ms: float


class _Stopped(BaseException):
    """Ends a pipeline because another one failed."""


class _Turns:
    def __init__(self, names: Sequence[str]) -> None:
        self._order = cycle(chain(names, reversed(names)))
        self._present = set(names)
        self._changed = Condition()
        self._turn = next(self._order)
        self._began = perf_counter()
        self._cpu_began = _cpu_s()
        self.failed: BaseException | None = None
        self.turns: dict[str, list[Turn]] = {name: [] for name in names}

    def await_turn(self, name: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == name or self.failed is not None)
            if self.failed is not None:
                raise _Stopped
            self._cpu_began = _cpu_s()
            self._began = perf_counter()

    def end_epoch(self, name: str) -> None:
        ms = (perf_counter() - self._began) * 1000
        self.turns[name].append(Turn(ms, (_cpu_s() - self._cpu_began) * 1000))
        self._pass_on()
        self.await_turn(name)

    def leave(self, name: str, failure: BaseException | None = None) -> None:
        if self.failed is None and not isinstance(failure, _Stopped):
            self.failed = failure
        self._present.discard(name)
        self._pass_on()

    def _pass_on(self) -> None:
        with self._changed:
            if self._present:
                self._turn = next(name for name in self._order if name in self._present)
            self._changed.notify_all()


def run_by_turns(runs: Mapping[str, Callable[[Pass], None]]) -> dict[str, list[Turn]]:
    """Run all, one epoch at a time; what each epoch took, by name, in their order.

    Each run gets a function that it must call at the end of every epoch. The call returns when the
    others have had their turn.
    """
    turns = _Turns(list(runs))

    def one(name: str, run: Callable[[Pass], None]) -> None:
        try:
            turns.await_turn(name)
            run(lambda: turns.end_epoch(name))
        except BaseException as failure:
            turns.leave(name, failure)
        else:
            turns.leave(name)

    threads = [Thread(target=one, args=pair, name=pair[0], daemon=True) for pair in runs.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if turns.failed is not None:
        raise HeadraceError(f"a run that took turns failed: {turns.failed}") from turns.failed
    return turns.turns


def _cpu_s() -> float:
    """Processor time of this process, of the JVM and of Python workers, ended ones included."""
    this = psutil.Process()
    total = 0.0
    for process in (this, *this.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])  # own and ended children's, user and system
        except psutil.Error:
            continue
    return total
