"""The keeper: makes durable what epochs have only written, in fragments, while epochs go on (M3).

1. A checkpoint of epoch c begins after the commit of c. For each slot that has a delta which is
   only written, the thread merges all its deltas since the last checkpoint, up to c and no later,
   into a fragment, and writes it durably. Small fragments ride in the entry that adopts them.
2. When all fragments are durable, the next commit adopts them and says `checkpoint: c`; where no
   commit is due, an entry of its own does. Only then may the deltas go, and sources forget.
3. Rings stay as they are from 1 to 2: a slot that moved would take names of deltas along which no
   fragment replaces.

Fragments bear the number of the epoch that was open when the checkpoint began. Collection leaves
files from that epoch on alone until the checkpoint is done, and a driver that was overtaken knows
only earlier epochs. A new leader begins an unfinished checkpoint again, of its own last epoch.

One checkpoint is under way at a time, and one thread makes its fragments one after the other,
spread over several epochs, so that each of these is a little slower and none of them much. Where
somebody waits for the checkpoint they are made at once. With two threads the epochs beside them
took up to twice as long, and the fragments no less. A thread of low priority delays the epochs more
than one of the usual priority (`system.System.executor`). Where deltas lie on executors' own disks,
tasks of their slots make the fragments instead, all together (`upkeep/makers`).

If the store cannot keep up, the next checkpoint begins later and covers more epochs: the interval
grows by itself, and comes back. The keeper decides nothing about time: `plan/interval` does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from headrace.engine.history.recovery import History
from headrace.engine.upkeep.fragments import Fragment, FragmentJob, adopted, riding
from headrace.engine.upkeep.held import HeldDeltas
from headrace.engine.upkeep.makers import maker_of
from headrace.errors import CorruptCheckpoint, DeltaMissing
from headrace.failpoints import reach
from headrace.log.entry import CHECKPOINT
from headrace.log.epochlog import EpochLog
from headrace.plan.decisions.transient import is_outage
from headrace.plan.entries import CheckpointBody
from headrace.plan.epoch import Adoption, Plan
from headrace.plan.interval.cadence import Cadence, Due, due
from headrace.plan.interval.state import CommitInterval
from headrace.plan.ledger import Ledger
from headrace.plan.listener import Listeners
from headrace.plan.progress import CheckpointProgress
from headrace.plan.rings.ring import Ring
from headrace.store.store import Store

_MISSES = 2
"""Where deltas lie on executors' disks, a task that misses one may only have run elsewhere: after
so many misses the delta is lost."""
_NAP_S = 0.005
_logger = logging.getLogger("headrace.keeper")

Place = tuple[str, int]


@dataclass
class _Checkpoint:
    """A checkpoint from its beginning to the entry that adopts it."""

    at: int
    due: Due
    began: int
    """The epoch that was open when it began: its fragments bear this number."""
    rings: dict[str, int]
    """The versions of the rings whose slots it is of."""
    jobs: dict[Place, FragmentJob] = field(default_factory=dict)
    running: dict[Place, Future[Fragment]] = field(default_factory=dict)
    done: dict[Place, Fragment] = field(default_factory=dict)
    missed: dict[Place, int] = field(default_factory=dict)
    """How often a delta of a slot was not found."""

    @property
    def is_complete(self) -> bool:
        return len(self.done) == len(self.jobs)

    @property
    def begun(self) -> int:
        return len(self.done) + len(self.running)


class Keeper:
    """Makes and adopts checkpoints, for the driver that leads."""

    def __init__(
        self,
        store: Store,
        log: EpochLog,
        history: History,
        cadence: Cadence,
        listeners: Listeners,
        *,
        ring_of: Callable[[str], Ring],
        repair: Callable[[History, list[str]], bool],
        on_entry: Callable[[], None] = lambda: None,
        background: bool,
        hurries: bool = False,
        held: HeldDeltas | None = None,
    ) -> None:
        """`repair` makes deltas again that cannot be reached, and says whether manifests changed;
        `ring_of` gives a ring as it is now.

        `on_entry` is called when an entry of its own has changed manifests.
        With `background=False` fragments are made in the calling thread, for tests. One that
        `hurries` makes all fragments of a checkpoint at once. `held`: the disks of executors, if
        what is only written lies there, and not where this process can read it.
        """
        self._store, self._log, self._history = store, log, history
        self.cadence, self._listeners = cadence, listeners
        self._ring_of, self._repair, self._on_entry = ring_of, repair, on_entry
        self._maker = maker_of(store, held, background=background)
        self._hurries = hurries or not background or self._maker.at_once
        self._background, self._misses = background, 1 if held is None else _MISSES
        self._under_way: _Checkpoint | None = None
        self._began_s = store.system.uptime_s()
        self._ended_s: float | None = None
        self.riders: dict[str, bytes] = {}
        """Fragments of the last adoption that are to ride in its entry: name -> bytes."""
        self._adopting: _Checkpoint | None = None
        self._at_once = False
        """Whether the next checkpoint does not wait for its time."""
        self._outage: Exception | None = None
        """Why a fragment could not be written at the last try."""

    @property
    def _ledger(self) -> Ledger:
        return self._history.ledger

    @property
    def writes(self) -> bool:
        """Whether the deltas of the next plan are only written (M2)."""
        return not self.cadence.is_each_epoch

    @property
    def holds_rings(self) -> bool:
        """Whether rings must stay as they are: a checkpoint of these slots is under way."""
        return self._under_way is not None

    def making_since(self, closed: int) -> int:
        """The first epoch whose files collection must leave alone."""
        return self._under_way.began if self._under_way is not None else closed + 1

    # Between two epochs ---------------------------------------------------

    def consider(self) -> None:
        """After a commit, or while nothing is due: begins a checkpoint, or goes on with one.

        One does not begin under a plan that changes rings.
        """
        if self._under_way is not None:
            self._go_on()
            return
        if self._ledger.interval.is_durable:
            return
        now_s = self._store.system.uptime_s()
        ended_s = None if self._ended_s is None else self._ended_s - self._began_s
        found = due(
            # Each epoch, too, where an earlier run has left something that is only written.
            self.cadence if self.writes and not self._at_once else Cadence(1),
            self._ledger.interval,
            self._ledger.epoch,
            elapsed_s=now_s - self._began_s,
            busy_at_s=ended_s,
        )
        plan = self._ledger.open_plan
        if found is not None and not (plan is not None and plan.moves):
            self._begin(found)

    def _begin(self, found: Due) -> None:
        ledger = self._ledger
        self._began_s, self._ended_s = self._store.system.uptime_s(), None
        self._at_once = False
        rings = {name: ref.version for name, ref in ledger.rings.items()}
        self._under_way = _Checkpoint(ledger.epoch, found, ledger.epoch + 1, rings)
        self._go_on()

    def _go_on(self, *, at_once: bool = False, mends: bool = True) -> None:
        """Starts fragments that are missing, and takes those that are ready.

        They are spread over several epochs, unless all are to be made `at_once`. `mends`: see
        `_take`.
        """
        checkpoint = self._under_way
        if checkpoint is None:
            return
        rings = {name: ref.version for name, ref in self._ledger.rings.items()}
        if rings != checkpoint.rings:  # an outage has kept it open until a plan moved slots
            self._under_way = None
            return
        if not checkpoint.jobs:
            checkpoint.jobs = self._jobs(checkpoint)
        self._take(checkpoint, mends=mends)
        most = len(checkpoint.jobs)
        if not (at_once or self._hurries):
            most = checkpoint.due.begun(most, self._ledger.epoch - checkpoint.at)
        room = most - checkpoint.begun
        if self._maker.ahead is not None:
            room = min(room, self._maker.ahead - len(checkpoint.running))
        begun_or_done = {*checkpoint.done, *checkpoint.running}
        waiting = [place for place in checkpoint.jobs if place not in begun_or_done]
        waiting = waiting[: max(room, 0)]
        for some in [waiting] if self._maker.at_once else [[place] for place in waiting]:
            begun = self._maker.begin([checkpoint.jobs[place] for place in some])
            checkpoint.running.update(zip(some, begun, strict=True))
            if not self._background:
                self._take(checkpoint, mends=mends)
                if self._under_way is None:
                    return

    def _take(self, checkpoint: _Checkpoint, *, mends: bool) -> None:
        """Takes the fragments that are ready; one that failed is made again.

        Without `mends` those that failed wait: a repair may change the state under a commit that
        was computed already.
        """
        lost: list[str] = []
        for place, future in list(checkpoint.running.items()):
            if not future.done() or (not mends and future.exception() is not None):
                continue
            del checkpoint.running[place]
            try:
                checkpoint.done[place] = future.result()
            except DeltaMissing as error:
                checkpoint.missed[place] = checkpoint.missed.get(place, 0) + 1
                if checkpoint.missed[place] >= self._misses:
                    lost += error.segments
            except CorruptCheckpoint:
                raise
            except Exception as error:
                if not is_outage(error):
                    raise
                self._outage = error
                _logger.warning("a fragment could not be written, and is tried again: %s", error)
        if lost and self._repair(self._history, lost):
            self._on_entry()
            self.begin_again()

    def hurry(self) -> None:
        """Somebody waits for the next checkpoint: it does not wait for its time."""
        self._at_once |= not self._ledger.interval.is_durable and self._under_way is None

    def begin_again(self) -> None:
        """Manifests have changed under a checkpoint: the next one begins as soon as it can.

        What the log said before is the past of other state, from which nothing can be made again.
        """
        self._under_way = None
        self._at_once = True

    def _jobs(self, checkpoint: _Checkpoint) -> dict[Place, FragmentJob]:
        """What each slot's fragment is made of: exactly the epochs since the last checkpoint."""
        ledger, limits = self._ledger, self._store.system.limits
        slots = sum(len(each) for each in ledger.slots.values())
        room = min(limits.ride_bytes_max, limits.ride_total_max // max(slots, 1))
        since, found = ledger.interval.checkpoint, {}
        for name, of_name in ledger.slots.items():
            for slot, state in of_name.items():
                run = tuple(e for e in state.entries if since < e.last_epoch <= checkpoint.at)
                if any(entry.written for entry in run):
                    found[name, slot] = FragmentJob(
                        name,
                        slot,
                        run,
                        state.entries,
                        state.classes,
                        self._ring_of(name).records(slot),
                        checkpoint.began,
                        room,
                        self._store.system.wall_s(),
                    )
        return found

    # Adoption -------------------------------------------------------------

    def adoptions(self, plan: Plan) -> tuple[list[Adoption], CommitInterval | None]:
        """The fragments that this commit adopts, if all of the checkpoint are durable."""
        self.riders, self._adopting = {}, None
        checkpoint = self._under_way
        if checkpoint is None or plan.moves:
            return [], None
        self._go_on(mends=False)  # `consider` takes the others, after the commit
        if self._under_way is None or not checkpoint.is_complete:
            return [], None
        return self._adopt(checkpoint), CommitInterval(
            checkpoint=checkpoint.at, late=checkpoint.due.late
        )

    def _adopt(self, checkpoint: _Checkpoint) -> list[Adoption]:
        found: list[Adoption] = []
        for fragment in checkpoint.done.values():
            found += adopted(fragment)
            self.riders.update(riding(fragment))
        self._adopting = checkpoint
        return found

    def committed(self) -> None:
        """The entry that adopts fragments is in the log."""
        checkpoint, self._adopting = self._adopting, None
        if checkpoint is None:
            return
        self._under_way = None
        self._ended_s = self._store.system.uptime_s()
        adopted_s = self._store.system.wall_s()
        for fragment in checkpoint.done.values():
            job = fragment.job
            self._listeners.checkpoint(
                CheckpointProgress(
                    self._listeners.pipeline,
                    job.computation,
                    job.slot,
                    checkpoint.at,
                    fragment.digest,
                    fragment.bytes,
                    job.queued_s,
                    fragment.started_s,
                    fragment.durable_s,
                    adopted_s,
                )
            )

    def settle(self, *, at_once: bool = False) -> bool:
        """Adopts a complete checkpoint by an entry of its own; returns whether there was one.

        For a pipeline that has nothing to do: no commit would say it. With `at_once` a checkpoint
        does not wait for the end of its interval.
        """
        self._at_once |= at_once and not self._ledger.interval.is_durable
        self.consider()
        self._go_on(at_once=True)
        checkpoint = self._under_way
        if checkpoint is None or not checkpoint.is_complete:
            return False
        self.riders = {}
        adoptions = self._adopt(checkpoint)
        said = CommitInterval(checkpoint=checkpoint.at, late=checkpoint.due.late)
        reach("before-checkpoint-write")
        self._log.append(CHECKPOINT, CheckpointBody(said, adoptions), self.riders)
        self._ledger.kept(said, adoptions, self._log.position)
        self._on_entry()
        reach("after-checkpoint-write")
        self.committed()
        return True

    def complete(self) -> None:
        """Makes all state durable, and waits for it: before a savepoint, a hand-over, the end (M6).

        It may raise an outage; then it is called again.
        """
        while not self._ledger.interval.is_durable:
            self._outage = None
            if self._under_way is None:
                self._begin(Due(late=False))
            if self.settle():
                continue
            if self._outage is not None:
                raise self._outage
            if self._background:
                self._store.system.sleep(_NAP_S)

    def close(self) -> None:
        """Waits for fragments that are being written; nothing adopts them."""
        self._maker.close()
