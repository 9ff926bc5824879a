"""Anchors: keep tasks on their executor, although Spark places shuffle tasks at random.

An anchor is a cached frame with one partition per task and no rows. A join with the shuffled rows
does not change them, but Spark runs a task where the first of its cached inputs lies. Several
anchors in a row define which executors are preferred next when an executor dies: the replicas.
All levels share an anchor. Slots are dealt to tasks in the same way in every epoch (J10), so a slot
stays where its task stays, and new slots need no new anchor.

Three things look odd, and have these reasons:
- Anchors are empty. A shuffle with data has a preferred host of its own, which Spark would prefer
  to the next anchor.
- The join is a full outer sort-merge join with the anchor on the left: Spark looks at inputs from
  the left, and a right outer join would put the rows there. Between anchors it is a left outer
  join, which keeps partitions as they are.
- Each frame contains a unique name, because Spark caches equal frames only once.
"""

from __future__ import annotations

import secrets
import time
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.functions import col, lit

from headrace.engine.spark.anchoring.joining import PLACES, Spare, WarmUp
from headrace.engine.spark.tasks import tell_place
from headrace.plan.decisions.placement import (
    Placement,
    best,
    excess,
    guards,
    lacking,
    moved,
    replicas_of,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

BUILDS_MAX = 3
"""How many anchors are built to find an even one."""
STANDBY_BUILDS_MAX = 10
"""How many more anchors are built to find replicas for every task."""
REST_S = 30.0
"""So long after an executor has left, no replicas are chosen again: most often another one comes.
A task of the jobs that choose them would be the first task on it, which takes seconds."""


class Anchor:
    """The anchors for one number of tasks: the home first, then the replicas."""

    def __init__(self, frames: list[DataFrame], home: Placement, replicas: int) -> None:
        self.frames = frames
        self.home = home
        self.replicas: list[tuple[str, ...]] = [() for _ in home]
        self.wanted = replicas
        """Per task, the executors that take over, in the order in which Spark prefers them."""
        self.guards: dict[int, list[int]] = {}
        """Task -> tasks for which its executor is a replica."""

    def hold(self, rows: DataFrame | None) -> DataFrame:
        """The rows (or none), with each partition placed where its anchor is."""
        held = self.frames[0]
        for standby in self.frames[1:]:
            other = standby.select(col("task").alias("next")).hint("merge")
            held = held.join(other, col("task") == col("next"), "left_outer").drop("next")
        if rows is None:
            return held
        joined = held.join(rows.hint("merge"), col("task") == col("partition"), "full_outer")
        return joined.select(*rows.columns)


class Anchors:
    """Builds anchors, and rebuilds them when executors join and tasks are spread unevenly."""

    def __init__(
        self,
        session: SparkSession,
        context: SparkContext,
        replicas: int,
        uptime_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._context = context
        self._replicas = replicas
        self._uptime_s = uptime_s
        self._anchor: Anchor | None = None
        self._cores = 0
        self._each = int(context.getConf().get("spark.executor.cores", "0") or 0)
        """The cores of an executor; 0 if that is not known."""
        self._uncertain = False
        self.waits = False
        """Whether tasks are to be spread again, as soon as they need not stay where they are."""
        self._warm_up: WarmUp | None = None
        """What warms up executors that have joined, until its end was noticed."""
        self._spares: list[Spare] = []
        """Frames that it has built for the next anchor."""
        self._is_located = True
        """Whether it is known where the anchors lie: no task was seen elsewhere since they told."""
        self._has_lost = False
        """Whether an executor has left, and no epoch has run since."""
        self._rests_until_s: float | None = None
        """When replicas are chosen again at the latest, after an executor has left."""
        _warn_of_settings(context)

    def refresh(self, stays: Callable[[], bool] = lambda: False) -> bool:
        """Checks whether executors have joined or left; True if anchors changed.

        Tasks move to an executor that has joined only when it is warm. Until then epochs go on
        where they are. They do not move either while `stays` says that something which only their
        executor has is still needed (M6).
        """
        looks = self._look_around()
        if not looks and (not self.waits or stays()):
            return False
        anchor = self._anchor
        if anchor is None:
            return False
        home, others = self._places(anchor)
        executors = self._executors([home])
        is_cold = self._warm_up is not None
        rests = is_cold or self._rests_until_s is not None
        self.waits = bool(excess(home, executors)) and not is_cold
        if self.waits and not stays():
            self.waits = False
            spares, self._spares = self._spares, []
            self._anchor = self._build(len(home), home, spares)
            _release(anchor)
            return True
        if not self.waits and lacking(home, others, self._possible(executors)) and not rests:
            # The tasks stay where they are; only new replicas are chosen.
            first, *rest = anchor.frames
            spare = [Spare(*each) for each in zip(rest, others, strict=True)]
            self._anchor = self._cover(len(home), first, home, spare, executors)
            return True
        anchor.home = home
        self._assign(anchor, others)
        return False

    def _look_around(self) -> bool:
        """Whether it is to be checked where the anchors lie; warms up executors that joined."""
        cores = self._cores_now()
        checks = self._uncertain or cores < self._cores
        if cores < self._cores:
            self._has_lost = True
            self._rests_until_s = self._uptime_s() + REST_S
            self._release_spares()  # they may lie on what has left
        joined, self._cores, self._uncertain = cores > self._cores, cores, False
        if joined:
            self._begin_warm_up()
        elif self._warm_up is not None and self._warm_up.is_done:
            self._release_spares()
            self._spares = self._warm_up.take()
            self._warm_up, self._rests_until_s, checks = None, None, True
        elif self._rests_until_s is not None and self._uptime_s() >= self._rests_until_s:
            self._rests_until_s, checks = None, True
        return checks

    def _places(self, anchor: Anchor) -> tuple[Placement, list[Placement]]:
        """Where the anchors lie: the first, and those of replicas."""
        if self._is_located and not self._replicas:
            return anchor.home, []
        home, *others = [self._locate(frame) for frame in anchor.frames]
        self._is_located = True
        return home, others

    def _begin_warm_up(self) -> None:
        if self._warm_up is not None:
            self._warm_up.give_up()
        self._warm_up = WarmUp(self._session, self._cores_now, self._each, self._even_frames)

    def _even_frames(self) -> Iterator[Spare]:
        """Frames for an anchor in which no executor has too much, if that in use is not so."""
        anchor = self._anchor
        if anchor is None or not self._is_uneven(anchor.home):
            return
        for _ in range(BUILDS_MAX):
            spare = self._one_more(len(anchor.home))
            yield spare
            if not self._is_uneven(spare.place):
                return

    def _release_spares(self) -> None:
        for spare in self._spares:
            spare.frame.unpersist()
        self._spares = []

    def use(self, tasks: int) -> bool:
        """Prepares the anchors for that many tasks; True if they are new."""
        known = self._anchor
        if known is not None and len(known.home) == tasks:
            return False
        self._cores = self._cores_now()
        self._release_spares()
        self._anchor = self._build(tasks, (), [])
        self._is_located = True
        if self._is_uneven(self._anchor.home) or self._warm_up is not None:
            # An executor had no task for us: it has just come. Tasks move to it when it is warm.
            # A warm-up that runs would build frames for another number of tasks.
            self._begin_warm_up()
        if known is not None:
            # Spark's dynamic allocation frees an executor only when it holds no anchor.
            _release(known)
        return True

    @property
    def known(self) -> Anchor | None:
        """The anchors in use; None if there are none yet."""
        return self._anchor

    @property
    def current(self) -> Anchor:
        """The anchors in use."""
        if self._anchor is None:
            raise RuntimeError("no anchors yet: call use() first")
        return self._anchor

    def ran(self, tasks: int, seen: dict[int, str]) -> None:
        """Notes where tasks of the last level ran; an unexpected place means a lost executor.

        What lay on a lost executor is cached again where its tasks ran, so no job is needed to
        find it: the epochs after a death are slow enough.
        """
        anchor = self._anchor
        if anchor is None or len(anchor.home) != tasks:
            return
        if moved(anchor.home, seen):
            self._uncertain = True
            lost = self._has_lost or self._cores_now() < self._cores
            self._is_located = lost and len(seen) == tasks
            if self._is_located:
                anchor.home = tuple(seen[task] for task in range(tasks))
        self._has_lost = False

    def drop(self) -> None:
        """Drops all anchors: the executors that hold them cannot be relied on."""
        if self._anchor is not None:
            _release(self._anchor)
        self._anchor = None
        if self._warm_up is not None:
            self._warm_up.give_up()
        self._warm_up = None
        self._release_spares()

    def _build(self, tasks: int, now: Placement, made: list[Spare]) -> Anchor:
        """An anchor of the best of some frames, more of which are built where none is even."""
        for _ in range(BUILDS_MAX):
            executors = self._executors([place for _, place in made])
            if any(not excess(place, executors) for _, place in made):
                break
            made.append(self._one_more(tasks))
        executors = self._executors([place for _, place in made])
        frame, home = made.pop(best([place for _, place in made], executors, now))
        return self._cover(tasks, frame, home, made, executors)

    def _cover(
        self,
        tasks: int,
        first: DataFrame,
        home: Placement,
        spare: list[Spare],
        executors: int,
    ) -> Anchor:
        """The anchors behind the first, as many as are needed to give every task its replicas."""
        possible = self._possible(executors)
        chosen: list[int] = []
        for _ in range(STANDBY_BUILDS_MAX):
            places = [place for _, place in spare]
            chosen = _needed(home, places, possible)
            if not lacking(home, [places[at] for at in chosen], possible):
                break
            spare.append(self._one_more(tasks))
        for at, (frame, _) in enumerate(spare):
            if at not in chosen:
                frame.unpersist()
        anchor = Anchor([first, *(spare[at][0] for at in chosen)], home, possible)
        self._assign(anchor, [spare[at][1] for at in chosen])
        return anchor

    def _one_more(self, tasks: int) -> Spare:
        frame = self._frame(tasks)
        return Spare(frame, self._locate(frame))

    def _assign(self, anchor: Anchor, others: list[Placement]) -> None:
        anchor.replicas = replicas_of(anchor.home, others, anchor.wanted)
        anchor.guards = guards(anchor.home, anchor.replicas)

    def _possible(self, executors: int) -> int:
        return max(0, min(self._replicas, executors - 1))

    def _frame(self, tasks: int) -> DataFrame:
        numbers = self._session.range(0, tasks, 1, tasks)
        empty = numbers.where("id < 0").select(
            col("id").cast("int").alias("task"), lit(secrets.token_hex(6)).alias("anchor")
        )
        return empty.repartitionById(tasks, col("task")).persist()

    def _locate(self, frame: DataFrame) -> Placement:
        """The executor of each task; builds the frame if it is not cached yet."""
        told = frame.mapInArrow(tell_place, PLACES).collect()
        return tuple(name for _, name in sorted((row[0], row[1]) for row in told))

    def _executors(self, places: list[Placement]) -> int:
        """How many executors there are: as many as were seen, or as the number of cores implies."""
        seen = len({name for placement in places for name in placement})
        return max(seen, self._cores // self._each if self._each else 0)

    def _is_uneven(self, place: Placement) -> bool:
        """Whether an executor has more than its share of the tasks."""
        return excess(place, self._executors([place])) > 0

    def _cores_now(self) -> int:
        """The cores of all executors that Spark knows of."""
        return int(self._context.defaultParallelism)


def _release(anchor: Anchor) -> None:
    for frame in anchor.frames:
        frame.unpersist()


def _needed(home: Placement, places: list[Placement], wanted: int) -> list[int]:
    """The fewest other anchors, chosen greedily, so that no task lacks replicas."""
    chosen: list[int] = []
    while lacking(home, [places[at] for at in chosen], wanted):
        others = [places[at] for at in chosen]
        left = [at for at in range(len(places)) if at not in chosen]
        gains = {at: lacking(home, [*others, places[at]], wanted) for at in left}
        if not gains or min(gains.values()) == lacking(home, others, wanted):
            break
        chosen.append(min(gains, key=lambda at: gains[at]))
    return chosen


def _warn_of_settings(context: SparkContext) -> None:
    wait = context.getConf().get("spark.locality.wait", "3s") or "3s"
    if wait.rstrip("ms") in ("0", "0.0"):
        warnings.warn(
            "spark.locality.wait is 0 in this session: Spark will not keep tasks on their "
            "executor. Leave it at its default of 3s; it can only be set when Spark starts",
            stacklevel=2,
        )
    if (context.getConf().get("spark.speculation", "false") or "false").lower() == "true":
        warnings.warn(
            "spark.speculation is on in this session: Spark may run a task twice at once. Results "
            "stay correct, but epochs take longer; it can only be set when Spark starts",
            stacklevel=2,
        )
