"""The driver: gathers facts, asks for decisions, and carries them out. One epoch at a time.

The acts of an epoch, in this order, and why:
1. plan    durable before the job, so that a crash repeats it exactly;
2. job     makes segments that do not count yet; small ones come with the reports;
3. judge   accepts one output per producer, or the plan runs again;
4. commit  one durable write, which usually carries the next plan;
5. deliver after the commit, so that no visible row is ever revoked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

import msgspec
from msgspec.structs import replace

from headrace.engine.driver.control import Controller
from headrace.engine.driver.delivery import Deliverer
from headrace.engine.driver.deploying import LeadersDeploy
from headrace.engine.driver.elastic import Elastic
from headrace.engine.driver.figures import COMMITTING, DELIVER, JUDGE, PLANNING, VOIDING, Figures
from headrace.engine.driver.injectors import Injectors
from headrace.engine.driver.keeping import Keeping
from headrace.engine.driver.setup import Setup, applier_of, attempts_of, compactor_of
from headrace.engine.driver.takeover import (
    adopt_names,
    refuse_orphaned_feedback,
    remember_changes,
    settings_for,
    skip_open_plan,
)
from headrace.engine.history.orders import work_order_of
from headrace.engine.history.recovery import History
from headrace.engine.history.rings import Rings
from headrace.engine.history.tables import PlannedTables
from headrace.engine.jobs.attempts import HeldUp, failed_often
from headrace.engine.upkeep.collection import Collector, needed_by
from headrace.engine.upkeep.compactor import changed_slots
from headrace.engine.upkeep.determinants import make_ready
from headrace.errors import HeadraceError, IncompatibleState, SparkError, StoreError
from headrace.failpoints import reach
from headrace.log.entry import COMMIT, PLAN, VOID
from headrace.log.epochlog import EpochLog, Waiter
from headrace.log.identity import require_present
from headrace.plan.control import ASKED
from headrace.plan.counters import Counters
from headrace.plan.decisions.hints import keys_of
from headrace.plan.decisions.next_step import Finish, Run, Wait, decide
from headrace.plan.decisions.pace import Pace
from headrace.plan.decisions.skips import skips
from headrace.plan.decisions.stragglers import slowed
from headrace.plan.decisions.transient import is_outage
from headrace.plan.decisions.verdict import DeltasLost, RunAgain
from headrace.plan.deploy.handover import Left
from headrace.plan.entries import CommitBody, VoidBody
from headrace.plan.epoch import Commit, Plan, WorkOrder
from headrace.plan.listener import Listeners
from headrace.plan.options import DURABLE
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
        self._clock, self._seeds = setup.clock, setup.seeds
        self._fingerprint = setup.fingerprint
        self._waiter = waiter
        self._figures = Figures(setup, self.ledger, listeners)
        self._renamed = adopt_names(self.topology, self.ledger)
        known = self.ledger.keys
        self._keys = {n: k for n, k in keys_of(self.topology).items() if known.get(n) != k}
        self._rings = Rings(self.store, self.ledger)
        self._tables = PlannedTables(self.store, self.ledger, self.topology)
        self._elastic = Elastic(setup, self.ledger, self._rings.ring_of, listeners, self._figures)
        self.settings = settings_for(setup, self._elastic.report_every)
        spark, fills = self.substrate.spark, self.options.epoch_records is None
        self._injectors = Injectors(self.topology, self.store, spark, fills=fills)
        self._deliverer = Deliverer(self.topology, self.store, checkpoint, spark, log.check, waiter)
        self.deploy = LeadersDeploy(log, history, self._deliverer, setup.store.system, setup.clock)
        self._pace = Pace.after(self.ledger.recent_records, self.options)
        self._compactor = compactor_of(setup, self._rings.ring_of)
        self._collector = Collector(
            self.store, log, self._deliverer.tidy, background=self.options.background
        )
        self._applier = applier_of(setup, checkpoint, history)
        self.control = Controller(setup, checkpoint, log, history)
        self._keeping = Keeping(setup, checkpoint, log, history, self._rings, listeners, on_job)
        self.control.before_savepoint = self._keeping.complete
        self._deliverer.up_to = self._keeping.deliverable
        self._attempts = attempts_of(setup, checkpoint, self._elastic.run, on_job, listeners.notice)
        self._open_for = 0
        """The directory of logged calls that this driver has opened."""
        self._checked_s = float("-inf")
        self._final_rounds = self._voids = 0
        self.notices: list[str] = []
        """Changes that the start has found and accepted."""

    # A driver's life ------------------------------------------------------

    def begin(self) -> None:
        """Opens sinks and sources, and finishes what the previous driver left open."""
        skip_open_plan(self.log, self.graph, self.ledger)
        refuse_orphaned_feedback(self.topology, self.ledger)
        try:
            self._deliverer.open(self.log.generation, self.ledger.epoch, self.history.nonces())
        except IncompatibleState:
            self.log.check()  # a sink is ahead if another driver has overtaken this one
            raise
        self.deploy.catch_up()
        self._applier.begin(self.log.generation)
        self._injectors.prepare()
        if self.options.deliver == DURABLE:
            self._keeping.complete()  # which may read again, so sources come first
            self.deploy.catch_up()
        found = self._injectors.compare(self.ledger, self.options.accept_changed)
        self.notices = remember_changes(self.log, self.ledger, found)
        self._injectors.settle(self.ledger, self.history.released)
        self.control.begin()

    def close(self) -> None:
        """Closes sinks and sources, but not the substrate. What is committed stays."""
        with ExitStack() as stack:  # one that fails to close does not keep the others open
            stack.callback(self._deliverer.close)
            stack.callback(self._collector.close)
            stack.callback(self._applier.close)
            stack.callback(self._compactor.close)
            stack.callback(self._keeping.close)
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
        self._applier.proceed()
        if self.ledger.control.stop != ASKED:
            self._deliverer.deliver_waiting()
            self.control.settle()
        if self.ledger.control.stop == ASKED:  # perhaps by a driver that has died since (I9)
            self.stop()
            self._keeping.complete()
            self.control.stopped()
            return Finish("stopped")
        if self.ledger.control.paused:
            return self._rest()
        plan = self.ledger.open_plan
        if plan is not None and plan.fingerprint != self._fingerprint:
            self._void(plan, "the pipeline's code or wiring has changed since")
            plan = None
        if plan is None:
            if self.deploy.comes_next:
                self._make_durable()
            if (handed := self.deploy.hand_over()) is not None:
                return handed
            decision = self._figures.time(PLANNING, self._decide)
            if not isinstance(decision, Run):
                if self.deploy.confirm_when_quiet(ends=isinstance(decision, Finish)):
                    self._deliverer.deliver_waiting()
                    self._injectors.settle(self.ledger, self.history.released)
                self._check_while_idle()
                if self._keeping.rest(ends=isinstance(decision, Finish)):
                    self._waiter.through(self._deliverer.deliver_waiting)
                # Whoever asked before the end gets an answer, and perhaps the end has to wait.
                heard = self.control.poll(now=isinstance(decision, Finish))
                return Wait(0) if heard else decision
            reach("before-plan-write")
            self._figures.time(PLANNING, self.log.append, PLAN, decision.plan)
            self.ledger.planned(decision.plan)
            reach("after-plan-write")
            plan = decision.plan
        self._run(plan)
        return Run(plan)

    def _rest(self) -> Wait:
        """One step of a paused pipeline; its open plan is voided, as its job does not start."""
        self.stop()
        self._make_durable()
        self._check_while_idle()
        return Wait(0 if self.control.poll() else None)

    def _make_durable(self) -> None:
        """All state is durable, and sinks have what waited for that (M6)."""
        self._keeping.complete()
        self._waiter.through(self._deliverer.deliver_waiting)

    def _check_while_idle(self) -> None:
        """Raises if another driver leads or the checkpoint is away; where calls cost, seldom."""
        now = self.store.system.uptime_s()
        if now - self._checked_s >= self.store.rewrite_interval_s:
            with counted_as(UPKEEP):
                require_present(self.store, self.checkpoint)
                self.log.check()
            self._checked_s = now

    # One epoch ------------------------------------------------------------

    def _decide(self) -> Run | Wait | Finish:
        wall = self._clock()
        records = slowed(self._pace.next(), carried_by_slot(self.ledger), self.ledger.limits)
        tasks = self.ledger.tasks or self.settings.tasks
        offers = self._injectors.offers(self.ledger, records, tasks, wall)
        decision = decide(
            self.topology,
            self.ledger,
            offers,
            self._keeping.settings(self.settings),
            ring_of=self._rings.ring_of,
            wall=wall,
            seed=self._seeds(),
            final_rounds=self._final_rounds,
            ready=self._elastic.ready,
        )
        if not isinstance(decision, Run):
            return decision
        self._elastic.planned(decision.plan, offers.values())
        return Run(self._tables.prepare(self._rings.prepare(decision.plan)))

    def _run(self, plan: Plan) -> None:
        self._figures.begin()
        done = self._complete(plan)
        if done is None:
            return
        commit, riders = done
        timed, deliverer = self._figures.time, self._deliverer
        timed(DELIVER, deliverer.deliver_weak, commit, riders)
        timed(COMMITTING, self._commit, plan, commit, riders)
        timed(DELIVER, deliverer.deliver, commit, riders, self.ledger.commit_position)
        seconds = self._figures.seconds()
        self._pace.took(commit.counters.records, seconds, plan.records)
        self._keeping.consider()
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
            order = replace(order, applied=self._waiter.through(self._applier.base))
            self._compactor.begin(plan, partial(self._rings.slot, plan))
            self.control.poll_beside()
            done = self._figures.time(JUDGE, self._attempts.attempt, order, self.ledger.limits)
            if isinstance(done.verdict, Commit):
                adoptions = self._compactor.adoptions(plan, partial(self._rings.slot, plan))
                steps = self._rings.steps(plan)
                sealed = self._waiter.through(lambda: self._injectors.seal(plan.epoch, self.ledger))
                link = self.history.link(self.store.system.token_hex(8))
                commit = replace(done.verdict, sealed=sealed, steps=steps, **link)
                commit, fragments = self._keeping.adopt(plan, commit, adoptions)
                return commit, done.riders | self._compactor.riders | fragments
            if isinstance(done.verdict, DeltasLost):
                reason = "state that was not durable yet was lost"
                self._keeping.repair(done.verdict.segments)
                order = self.work_order(plan)
                continue
            if isinstance(done.verdict, HeldUp):
                self._void(plan, done.verdict.reason, done.verdict.limits)
                return None
            if not isinstance(done.verdict, RunAgain):
                self._give_up(plan, done.verdict)
                raise done.verdict from done.cause
            reason, cause = done.verdict.reason, done.cause
        self._voids += 1
        self._void(plan, f"failed {ATTEMPTS_MAX} times: {reason}")
        self._pace.halve()
        if self._voids >= VOIDS_MAX:
            raise failed_often(self.graph, plan, ATTEMPTS_MAX * VOIDS_MAX, reason) from cause
        return None

    def _give_up(self, plan: Plan, error: HeadraceError) -> None:
        """Voids a plan that failed; the plan stays open if the failure was not its fault."""
        require_present(self.store, self.checkpoint)
        if not is_outage(error) and not isinstance(error, SparkError):
            self._void(plan, str(error))

    def _collect(self) -> None:
        merging_since = self._compactor.merging_since(self.ledger.epoch)
        saved, making_since = self.control.saved_files(), self._keeping.making_since()
        done = self._deliverer.acknowledged()
        self._collector.collect(needed_by(self.history, done, merging_since, saved, making_since))

    def work_order(self, plan: Plan) -> WorkOrder:
        """What every task must know: the plan, and the state that it starts from."""
        changes = self._rings.changes(plan)
        order = work_order_of(self.ledger, plan, changes, self.checkpoint)
        return replace(order, step=self.ledger.manifests.step(changes))

    @seldom_collecting()
    def _commit(self, plan: Plan, commit: Commit, riders: Mapping[str, bytes]) -> None:
        """Writes the commit, with the next plan if its job starts at once (A6).

        The ledger takes the commit in before the log has it, because the next plan and the
        snapshot, which the same entry carries, follow from the state after the commit. If the
        write then fails, the ledger is ahead of the log, and `step` refuses to continue.
        """
        position = self.log.position + 1
        if self._renamed or self._keys:  # the next driver reads it from the log
            commit = replace(commit, renamed=self._renamed, keys=self._keys)
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
        body.applied = self._applier.ride()
        body.next = self._following()
        if commit.epoch % self._limits.snapshot_every_epochs == 0:
            body.snapshot = replace(self.ledger, slots={})
            self.history.snapshotted(position)
        reach("before-commit-write")
        self.log.append(COMMIT, body, riders)
        reach("after-commit-write")
        self.deploy.released()
        self._keeping.committed()
        if body.next is not None:
            self.ledger.planned(body.next)
        self._elastic.told(body.decided)
        self._figures.epochs += 1

    def _following(self) -> Plan | None:
        """The next plan, if there is work to do at once."""
        control = self.ledger.control
        if control.paused or control.stop or skips(self.graph) or self.deploy.comes_next:
            return None  # with `skips`, a crash skips an open plan, so none is opened early
        try:  # its error must not spoil the commit
            msgspec.json.encode(decision := self._figures.time(PLANNING, self._decide))
        except Exception:
            return None  # this epoch is done anyway; the next step raises the error again
        return decision.plan if isinstance(decision, Run) else None

    def _void(self, plan: Plan, reason: str, limits: Mapping[str, SlotLimit] | None = None) -> None:
        void = VoidBody(plan.epoch, reason[:10_000], limits=dict(limits or {}))
        self._figures.time(VOIDING, self.log.append, VOID, void)
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
