"""The driver: gathers facts, asks for decisions, and carries them out. One epoch at a time.

The acts of an epoch, in this order, and why:
1. plan    durable before the job, so that a crash repeats it exactly;
2. job     makes segments that do not count yet; small ones come with the reports;
3. judge   accepts one output per producer, or the plan runs again;
4. commit  one durable write, which usually carries the next plan;
5. deliver after the commit, so that no visible row is ever revoked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

import msgspec

from headrace.engine.driver.control import Controller
from headrace.engine.driver.delivery import Deliverer
from headrace.engine.driver.deploying import LeadersDeploy
from headrace.engine.driver.elastic import Elastic
from headrace.engine.driver.figures import Figures
from headrace.engine.driver.injectors import Injectors
from headrace.engine.driver.setup import Setup
from headrace.engine.driver.takeover import (
    adopt_names,
    refuse_orphaned_feedback,
    remember_changes,
    settings_for,
)
from headrace.engine.history.recovery import History
from headrace.engine.history.rings import Rings
from headrace.engine.jobs.attempts import Attempts, HeldUp
from headrace.engine.jobs.stragglers import StragglerWatch
from headrace.engine.upkeep.collection import Collector, needed_by
from headrace.engine.upkeep.compactor import Compactor, changed_slots
from headrace.engine.upkeep.determinants import make_ready
from headrace.errors import EpochFailed, HeadraceError, IncompatibleState, SparkError, StoreError
from headrace.failpoints import reach
from headrace.log.entry import COMMIT, PLAN, VOID
from headrace.log.epochlog import EpochLog, Waiter
from headrace.log.identity import require_present
from headrace.plan.control import ASKED
from headrace.plan.counters import Counters
from headrace.plan.decisions.hints import keys_of
from headrace.plan.decisions.next_step import Finish, Run, Wait, decide
from headrace.plan.decisions.pace import Pace
from headrace.plan.decisions.skips import skipping, skips
from headrace.plan.decisions.stragglers import slowed
from headrace.plan.decisions.transient import is_outage
from headrace.plan.decisions.verdict import RunAgain
from headrace.plan.deploy.handover import Left
from headrace.plan.entries import CommitBody, VoidBody
from headrace.plan.epoch import Commit, Plan, WorkOrder
from headrace.plan.listener import Listeners
from headrace.plan.overload import SlotLimit
from headrace.plan.progress import RunSummary
from headrace.plan.summary import carried_by_slot, carried_rows
from headrace.store.counts import CALLS, UPKEEP, counted_as
from headrace.worker.garbage import seldom_collecting

ATTEMPTS_MAX = 4
"""How often a plan is tried before it is voided and a smaller one is made."""
VOIDS_MAX = 3
"""How many plans of one epoch may be voided because of the substrate before the run fails."""


class Driver:
    """Leads one checkpoint, starting at its generation in the log; see `Follower.take_over`."""

    def __init__(
        self,
        setup: Setup,
        checkpoint: str,
        log: EpochLog,
        history: History,
        listeners: Listeners,
        waiter: Waiter,
        on_job: Callable[[bool], None],
    ) -> None:
        self.topology, self.graph = setup.topology, setup.topology.graph
        self.store = setup.store
        self.options = setup.options
        self.substrate = setup.substrate
        self._limits = setup.store.system.limits
        self.checkpoint = checkpoint
        self.log = log
        self.history = history
        self.ledger = history.ledger
        self._clock = setup.clock
        self._seeds = setup.seeds
        self._fingerprint = setup.fingerprint
        self._waiter = waiter
        self._figures = Figures(setup, self.ledger, listeners)
        self._renamed = adopt_names(self.topology, self.ledger)
        known = self.ledger.keys
        self._keys = {n: k for n, k in keys_of(self.topology).items() if known.get(n) != k}
        self._rings = Rings(self.store, self.ledger)
        self._elastic = Elastic(setup, self.ledger, self._rings.ring_of, listeners)
        self.settings = settings_for(setup, self._elastic.report_every)
        spark, fills = self.substrate.spark, self.options.epoch_records is None
        self._injectors = Injectors(self.topology, self.store, spark, fills=fills)
        self._deliverer = Deliverer(self.topology, self.store, checkpoint, spark, log.check, waiter)
        self.deploy = LeadersDeploy(log, history, self._deliverer, setup.store.system, setup.clock)
        self._pace = Pace.after(self.ledger.recent_records, self.options)
        self._compactor = Compactor(
            self.store,
            self.topology,
            self._rings.ring_of,
            background=self.options.background,
            choose_run=setup.choose_run,
        )
        self._collector = Collector(
            self.store, log, self._deliverer.tidy, background=self.options.background
        )
        self.control = Controller(setup, checkpoint, log, history)
        watch = StragglerWatch(self.store, self.options, listeners.notice)
        if self.options.straggler_s is not None:
            self.substrate.give_up_when(watch.look)
        self._attempts = Attempts(
            self.topology,
            self.store,
            checkpoint,
            self._elastic.run,
            lambda: self.substrate.gone(),
            on_job,
            watch,
        )
        self._open_for = 0
        """The directory of logged calls that this driver has opened."""
        self._checked_s = float("-inf")
        self._final_rounds = self._voids = 0
        self.notices: list[str] = []
        """Changes that the start has found and accepted."""

    # A driver's life ------------------------------------------------------

    def begin(self) -> None:
        """Opens sinks and sources, and finishes what the previous driver left open."""
        if (void := skipping(self.graph, self.ledger)) is not None:
            self.log.append(VOID, void)
            self.ledger.voided(void.skipped, void.records)
        refuse_orphaned_feedback(self.topology, self.ledger)
        try:
            self._deliverer.open(self.log.generation, self.ledger.epoch, self.history.nonces())
        except IncompatibleState:
            self.log.check()  # a sink is ahead if another driver has overtaken this one
            raise
        self.deploy.catch_up()
        self._injectors.prepare()
        found = self._injectors.compare(self.ledger, self.options.accept_changed)
        self.notices = remember_changes(self.log, self.ledger, found)
        self._injectors.settle(self.ledger, self.history.released)
        self.control.begin()

    def close(self) -> None:
        """Closes sinks and sources, but not the substrate. What is committed stays."""
        with ExitStack() as stack:  # one that fails to close does not keep the others open
            stack.callback(self._deliverer.close)
            stack.callback(self._collector.close)
            stack.callback(self._compactor.close)
            stack.callback(self._injectors.close)
            stack.callback(self.control.close)

    def stop(self) -> None:
        """Voids the plan that the last commit carried, as its job will not start at once (A6)."""
        if self.ledger.open_plan is not None:
            self._void(self.ledger.open_plan, "the driver was asked to stop")

    def step(self) -> Run | Wait | Finish | Left:
        """Takes one decision and carries it out."""
        if self.ledger.commit_position > self.log.position:
            # `_commit` adds the commit to the ledger first; here the write of its entry failed.
            raise StoreError("this driver's last commit did not reach the log: start again")
        if self.ledger.control.stop != ASKED:
            self._deliverer.deliver_waiting()
            self.control.settle()
        if self.ledger.control.stop == ASKED:  # perhaps by a driver that has died since (I9)
            self.stop()
            self.control.stopped()
            return Finish("stopped")
        if self.ledger.control.paused:
            return self._rest()
        plan = self.ledger.open_plan
        if plan is not None and plan.fingerprint != self._fingerprint:
            self._void(plan, "the pipeline's code or wiring has changed since")
            plan = None
        if plan is None:
            if (handed := self.deploy.hand_over()) is not None:
                return handed
            decision = self._decide()
            if not isinstance(decision, Run):
                if self.deploy.confirm_when_quiet(ends=isinstance(decision, Finish)):
                    self._deliverer.deliver_waiting()
                    self._injectors.settle(self.ledger, self.history.released)
                self._check_while_idle()
                # Whoever asked before the end gets an answer, and perhaps the end has to wait.
                heard = self.control.poll(now=isinstance(decision, Finish))
                return Wait(0) if heard else decision
            reach("before-plan-write")
            self.log.append(PLAN, decision.plan)
            self.ledger.planned(decision.plan)
            reach("after-plan-write")
            plan = decision.plan
        self._run(plan)
        return Run(plan)

    def _rest(self) -> Wait:
        """One step of a paused pipeline; its open plan is voided, as its job does not start."""
        self.stop()
        self._check_while_idle()
        return Wait(0 if self.control.poll() else None)

    def _check_while_idle(self) -> None:
        """Raises Fenced if another driver leads; where requests cost, not at every poll."""
        now = self.store.system.uptime_s()
        if now - self._checked_s >= self.store.rewrite_interval_s:
            with counted_as(UPKEEP):
                self.log.check()
            self._checked_s = now

    # One epoch ------------------------------------------------------------

    def _decide(self) -> Run | Wait | Finish:
        wall = self._clock()
        records = slowed(self._pace.next(), carried_by_slot(self.ledger), self.ledger.limits)
        offers = self._injectors.offers(
            self.ledger, records, self.ledger.tasks or self.settings.tasks, wall
        )
        decision = decide(
            self.topology,
            self.ledger,
            offers,
            self.settings,
            ring_of=self._rings.ring_of,
            wall=wall,
            seed=self._seeds(),
            final_rounds=self._final_rounds,
            ready=self._elastic.ready,
        )
        if not isinstance(decision, Run):
            return decision
        self._elastic.planned(decision.plan, offers.values())
        return Run(self._rings.prepare(decision.plan))

    def _run(self, plan: Plan) -> None:
        began = time.perf_counter()
        done = self._complete(plan)
        if done is None:
            return
        commit, riders = done
        self._deliverer.deliver_weak(commit, riders)
        self._commit(plan, commit, riders)
        self._deliverer.deliver(commit, riders, self.ledger.commit_position)
        seconds = time.perf_counter() - began
        self._pace.took(commit.counters.records, seconds, plan.records)
        if not self.deploy.holds:
            self._injectors.settle(self.ledger, self.history.released)
        self._compactor.consider(self.history, changed_slots(commit))
        if commit.epoch % self._limits.collect_every_epochs == 0:
            self._waiter.through(self._collect)
        self._figures.report(commit, seconds)

    def _complete(self, plan: Plan) -> tuple[Commit, dict[str, bytes]] | None:
        """Runs a plan until its reports agree: its commit and riders (M1); None if it is void."""
        order = self.work_order(plan)
        if plan.determinants != self._open_for:
            with counted_as(CALLS):
                make_ready(self.store, self.log, plan)
            self._open_for = plan.determinants
        reason = ""
        cause: Exception | None = None
        for _ in range(ATTEMPTS_MAX):
            reach("before-job")
            self._compactor.begin(plan, partial(self._rings.slot, plan))
            self.control.poll_beside()
            done = self._attempts.attempt(order, self.ledger.limits)
            if isinstance(done.verdict, Commit):
                adoptions = self._compactor.adoptions(plan, partial(self._rings.slot, plan))
                steps = self._rings.steps(plan)
                sealed = self._waiter.through(lambda: self._injectors.seal(plan.epoch, self.ledger))
                link = self.history.link(self.store.system.token_hex(8))
                commit = msgspec.structs.replace(
                    done.verdict, adoptions=adoptions, sealed=sealed, steps=steps, **link
                )
                return commit, done.riders | self._compactor.riders
            if isinstance(done.verdict, HeldUp):
                held_up = ", ".join(done.verdict.limits)
                self._void(plan, f"it was held up by {held_up}", done.verdict.limits)
                return None
            if not isinstance(done.verdict, RunAgain):
                self._give_up(plan, done.verdict)
                raise done.verdict from done.cause
            reason, cause = done.verdict.reason, done.cause
        self._voids += 1
        self._void(plan, f"failed {ATTEMPTS_MAX} times: {reason}")
        self._pace.halve()
        if self._voids >= VOIDS_MAX:
            raise EpochFailed(
                f"pipeline {self.graph.name!r}, epoch {plan.epoch}: failed "
                f"{ATTEMPTS_MAX * VOIDS_MAX} times, at the last for {reason[:2000]}. "
                "Nothing of it has happened; start again when the cause is fixed"
            ) from cause
        return None

    def _give_up(self, plan: Plan, error: HeadraceError) -> None:
        """Voids a plan that failed; the plan stays open if the failure was not its fault."""
        require_present(self.store, self.checkpoint)
        if not is_outage(error) and not isinstance(error, SparkError):
            self._void(plan, str(error))

    def _collect(self) -> None:
        merging_since = self._compactor.merging_since(self.ledger.epoch)
        saved = self.control.saved_files()
        needed = needed_by(self.history, self._deliverer.acknowledged(), merging_since, saved)
        self._collector.collect(needed)

    def work_order(self, plan: Plan) -> WorkOrder:
        """What every task must know: the plan, and the state that it starts from."""
        changes = self._rings.changes(plan)
        return WorkOrder(
            plan=plan,
            checkpoint=self.checkpoint,
            ins=self.ledger.ins,
            outs=self.ledger.outs,
            rings=self.ledger.refs(plan, changes),
            bases=self.ledger.bases(plan, changes),
            came={name: change.came for name, change in changes.items()},
            step=self.ledger.manifests.step(changes),
            outbox=self.ledger.outbox,
        )

    @seldom_collecting()
    def _commit(self, plan: Plan, commit: Commit, riders: Mapping[str, bytes]) -> None:
        """Writes the commit, with the next plan if its job starts at once (A6).

        The ledger takes the commit in before the log has it, because the next plan and the
        snapshot, which the same entry carries, follow from the state after the commit. If the
        write then fails, the ledger is ahead of the log, and `step` refuses to continue.
        """
        position = self.log.position + 1
        if self._renamed or self._keys:  # the next driver reads it from the log
            commit = msgspec.structs.replace(commit, renamed=self._renamed, keys=self._keys)
            self._renamed, self._keys = {}, {}
        shards = self.history.committed(commit, position, self._rings.changes(plan))
        if not plan.final:
            self._final_rounds = 0
        elif not carried_rows(self.ledger):  # a limited slot takes as many epochs as it needs
            self._final_rounds += 1
        self._voids = 0
        body = CommitBody(commit, retain=self.history.retain, shards=shards)
        body.load, body.decided = self._elastic.committed(plan, self.ledger)
        body.confirms = self.deploy.confirms_with_commit()
        body.outcomes = self.control.ride()
        body.next = self._following()
        if commit.epoch % self._limits.snapshot_every_epochs == 0:
            body.snapshot = msgspec.structs.replace(self.ledger, slots={})
            self.history.snapshotted(position)
        reach("before-commit-write")
        self.log.append(COMMIT, body, riders)
        reach("after-commit-write")
        self.deploy.released()
        if body.next is not None:
            self.ledger.planned(body.next)
        self._elastic.told(body.decided)
        self._figures.epochs += 1

    def _following(self) -> Plan | None:
        """The next plan, if there is work to do at once."""
        if self.ledger.control.paused or self.ledger.control.stop:
            return None
        if skips(self.graph) or self.deploy.comes_next:
            return None  # a crash skips an open plan, so no plan is opened early
        try:
            msgspec.json.encode(decision := self._decide())  # its error must not spoil the commit
        except Exception:
            return None  # this epoch is done anyway; the next step raises the error again
        return decision.plan if isinstance(decision, Run) else None

    def _void(self, plan: Plan, reason: str, limits: Mapping[str, SlotLimit] | None = None) -> None:
        void = VoidBody(plan.epoch, reason[:10_000], limits=dict(limits or {}))
        self.log.append(VOID, void)
        self.ledger.voided(limits=void.limits)

    # Facts about the run --------------------------------------------------

    def counted(self) -> Counters:
        """The counters of this run so far."""
        return self._figures.counted()

    def watermark(self) -> int:
        """The lowest input watermark of all computations."""
        return self._figures.watermark()

    def summary(self, reason: str, *, whole: bool = False) -> RunSummary:
        """How the run ended; with `whole`, counters include all runs of this checkpoint."""
        return self._figures.summary(reason, self._deliverer.undelivered, whole=whole)
