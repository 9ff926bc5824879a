"""A leader's checkpoints of state: the keeper that makes them, and repairs of what was lost (M)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from headrace.engine.driver.setup import Setup, Substrate
from headrace.engine.history.recovery import History
from headrace.engine.history.rings import Rings
from headrace.engine.upkeep.held import HeldDeltas
from headrace.engine.upkeep.keeper import Keeper
from headrace.engine.upkeep.repairer import Repairer
from headrace.errors import StoreError
from headrace.log.epochlog import EpochLog
from headrace.model.values.time import END
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.next_step import Settings
from headrace.plan.epoch import Adoption, Commit, Plan, Report, WorkOrder
from headrace.plan.interval.cadence import Cadence
from headrace.plan.interval.refusals import refuse_interval
from headrace.plan.interval.state import CommitInterval
from headrace.plan.listener import Listeners
from headrace.plan.options import DURABLE
from headrace.store.store import Store


def require_interval(
    topology: Topology, store: Store, cadence: Cadence, substrate: Substrate | None = None
) -> None:
    """Refuses a checkpoint interval that this store or these sources do not allow (M7).

    Without a substrate it is too early to know what that one can do.
    """
    injectors = topology.graph.injectors.items()
    refuse_interval(
        cadence,
        location=store.where(),
        in_reach=substrate is None or substrate.held is not None or not store.is_far,
        once_only={n: i.source.describe() for n, i in injectors if not i.source.rereads},
    )


def _watched(
    run: Callable[[WorkOrder], Sequence[Report]], on_job: Callable[[bool], None], order: WorkOrder
) -> Sequence[Report]:
    """Runs a job; a leader whose job takes long is not stuck."""
    on_job(True)
    try:
        return run(order)
    finally:
        on_job(False)


class Keeping:
    """What the driver that leads does for the checkpoint interval, between its other acts."""

    def __init__(
        self,
        setup: Setup,
        checkpoint: str,
        log: EpochLog,
        history: History,
        rings: Rings,
        listeners: Listeners,
        on_job: Callable[[bool], None],
    ) -> None:
        """`checkpoint` is the id of the checkpoint; `on_job`: a job begins (True), or has ended."""
        self._history, self._rings = history, rings
        self._sinks_wait = setup.options.deliver == DURABLE
        self._held = setup.substrate.held
        self._tasks = 0
        """How many tasks the last epoch of this driver had; 0 if there was none."""
        self._missed_in = -1
        """After which epoch a task last missed a delta: in one epoch this is excused once."""
        self.repairer = Repairer(
            setup.topology,
            log,
            setup.store,
            checkpoint,
            setup.fingerprint,
            partial(_watched, setup.substrate.run, on_job),
            listeners,
            accepts=setup.options.accept_repairs,
            held=self._held,
        )
        self.keeper = Keeper(
            setup.store,
            log,
            history,
            setup.options.checkpoint_every,
            listeners,
            ring_of=rings.ring_of,
            repair=self.repairer.repair,
            on_entry=rings.forget,
            background=setup.options.background,
            hurries=self._sinks_wait,
            held=self._held,
        )

    def settings(self, settings: Settings) -> Settings:
        """The settings of the next plan: whether deltas are only written, and rings stay."""
        keeper, is_durable = self.keeper, self._history.ledger.interval.is_durable
        if self._held is not None and (keeper.writes or not is_durable):
            return self._in_place(self._held, settings)
        if not keeper.writes and not keeper.holds_rings:
            return settings
        return msgspec.structs.replace(settings, written=keeper.writes, still=keeper.holds_rings)

    def _in_place(self, held: HeldDeltas, settings: Settings) -> Settings:
        """The same where deltas lie on executors' disks: no slot moves while something is only
        written, and nothing more is only written as soon as one is to move (M6)."""
        ledger = self._history.ledger
        still = self.keeper.holds_rings or not ledger.interval.is_durable
        moves = held.moves or self._other_tasks(settings)
        if moves:
            self.keeper.hurry()
        return msgspec.structs.replace(
            settings,
            written=self.keeper.writes and not moves,
            still=still,
            held=True,
            still_tasks=self._tasks if still else 0,
        )

    def _other_tasks(self, settings: Settings) -> bool:
        """Whether the next plan is to have another number of tasks than the last one."""
        tasks = self._history.ledger.tasks or settings.tasks
        return self._tasks not in (0, tasks)

    def repair(self, segments: tuple[str, ...]) -> None:
        """Makes deltas again that tasks could not reach."""
        epoch = self._history.ledger.epoch
        if self._held is not None and self._missed_in != epoch:
            self._missed_in = epoch
            if self._are_there(self._held, segments):
                return  # a task has run elsewhere than where its slot is: the plan runs again
        if self.repairer.repair(self._history, segments):
            self._rings.forget()
            self.keeper.begin_again()

    def _are_there(self, held: HeldDeltas, segments: tuple[str, ...]) -> bool:
        """Whether these deltas lie where the tasks of their slots are to run."""
        asked: dict[int, list[str]] = {}
        for slots in self._history.ledger.slots.values():
            for slot, state in slots.items():
                names = [e.segment for e in state.entries if e.segment in segments]
                asked.setdefault(slot, []).extend(names)
        try:
            return not held.missing({slot: names for slot, names in asked.items() if names})
        except StoreError:
            return False  # nobody knows: to make them again is always right

    def adopt(
        self, plan: Plan, commit: Commit, adoptions: list[Adoption]
    ) -> tuple[Commit, dict[str, bytes]]:
        """A commit that adopts merges, and the fragments of a checkpoint that is complete.

        Returns also the fragments that ride in its entry.
        """
        self._tasks = plan.tasks
        if self._held is not None and self.keeper.writes and not plan.written:
            self.keeper.hurry()  # some slot is to move
        fragments, kept = self.keeper.adoptions(plan)
        said = commit.interval
        if kept is not None:
            before = said or CommitInterval()
            said = msgspec.structs.replace(before, checkpoint=kept.checkpoint, late=kept.late)
        made = msgspec.structs.replace(commit, adoptions=[*adoptions, *fragments], interval=said)
        return made, self.keeper.riders

    def committed(self) -> None:
        """The commit is in the log."""
        self.keeper.committed()

    def consider(self) -> None:
        """After an epoch: begins a checkpoint if one is due, or goes on with one."""
        self.keeper.consider()

    def rest(self, *, ends: bool) -> bool:
        """Nothing is due: a complete checkpoint is adopted; at the end all state is made durable.

        Where sinks wait for durable state, a checkpoint begins at once: no epoch may come for long.
        Returns whether the log has another entry now.
        """
        if ends:
            was_durable = self._history.ledger.interval.is_durable
            self.keeper.complete()
            return not was_durable
        ledger = self._history.ledger
        waits = self._held is not None and bool(ledger.wanted or ledger.announced)
        return self.keeper.settle(at_once=self._sinks_wait or waits)

    def complete(self) -> None:
        """Makes all state durable: before a savepoint or a hand-over (M6)."""
        self.keeper.complete()

    def deliverable(self) -> int:
        """The last epoch that sinks may get now: any, or the last one that is durable (M7)."""
        ledger = self._history.ledger
        return ledger.interval.durable(ledger.epoch) if self._sinks_wait else END

    def making_since(self) -> int:
        """The first epoch whose files collection must leave alone."""
        return self.keeper.making_since(self._history.ledger.epoch)

    def close(self) -> None:
        """Waits for what is being written."""
        self.keeper.close()
