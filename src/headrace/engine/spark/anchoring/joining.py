"""Executors that join: they are warmed up beside the epochs, before tasks move to them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from headrace.engine.spark.tasks import tell_place
from headrace.plan.decisions.placement import Placement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_logger = logging.getLogger("headrace.anchors")

ANSWERS_MAX, ANSWER_PAUSE_S = 60, 0.5
"""How often, and how long apart, new executors are asked for an answer before they are given up."""
PLACES = "task int, executor string"
"""What `tell_place` says."""


class Spare(NamedTuple):
    """A frame for an anchor, and where it lies."""

    frame: DataFrame
    place: Placement


class WarmUp:
    """Small jobs beside the epochs, after which new executors answer as fast as the others.

    The first task on an executor takes seconds: its JVM loads classes, and a Python worker starts
    and imports modules. The jobs have no place of their own, so the idle executors get their tasks.
    Spark counts the cores of an executor some time before it gives it tasks, so the jobs go on
    until every executor has answered. Then frames are built for the anchor that will be needed.
    """

    def __init__(
        self,
        session: SparkSession,
        cores: Callable[[], int],
        each: int,
        frames: Callable[[], Iterator[Spare]],
    ) -> None:
        self._session, self._cores, self._each, self._frames = session, cores, each, frames
        self._spares: list[Spare] = []
        self._given_up = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="headrace-warm-up", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether the jobs have ended, well or not."""
        return not self._thread.is_alive()

    def take(self) -> list[Spare]:
        """The frames that were built, which now belong to the caller."""
        with self._lock:
            taken, self._spares = self._spares, []
        return taken

    def give_up(self) -> None:
        """Whatever was built, or will be, is not needed."""
        with self._lock:
            self._given_up = True
        for spare in self.take():
            spare.frame.unpersist()

    def _run(self) -> None:
        try:
            if self._all_answer():
                for spare in self._frames():
                    with self._lock:
                        if not self._given_up:
                            self._spares.append(spare)
                            continue
                    spare.frame.unpersist()
                    return
        except Exception as error:  # Spark and py4j raise different types.
            _logger.debug("new executors could not be warmed up: %s", str(error)[:500])

    def _all_answer(self) -> bool:
        answered: set[str] = set()
        for _ in range(ANSWERS_MAX):
            cores = self._cores()
            numbers = self._session.range(0, cores, 1, cores)
            answered.update(row[1] for row in numbers.mapInArrow(tell_place, PLACES).collect())
            # How many cores an executor has is not always known: then one job must do.
            if not self._each or len(answered) >= cores // self._each:
                return True
            if self._given_up:
                break
            time.sleep(ANSWER_PAUSE_S)
        return False
