"""The driver: gathers facts, asks for decisions, acts on them. One epoch at a time.

The order of an epoch's acts, and why:
1. plan   durable before the job, so that a crash repeats it exactly;
2. job    writes segments that count for nothing yet;
3. judge  one output per producer, or the plan runs again;
4. commit one durable write, which usually carries the next plan;
5. deliver after the commit, so that nothing visible can be taken back.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import msgspec

from headrace.engine.driver.collection import collect
from headrace.engine.driver.compactor import Compactor
from headrace.engine.driver.delivery import Deliverer
from headrace.engine.driver.determinants import make_ready
from headrace.engine.driver.failures import final_failure
from headrace.engine.driver.injectors import Sources
from headrace.engine.driver.options import Options
from headrace.engine.driver.recovery import SNAPSHOT_EVERY, History, recover
from headrace.engine.driver.takeover import (
    adopt_names,
    make_directories,
    refuse_orphaned_feedback,
    remember_changes,
    require_present,
    rings_for,
)
from headrace.engine.hints import keys_of
from headrace.engine.leading.standby import StoodBack
from headrace.engine.summary import lowest_watermark, progress_of, summary_of
from headrace.errors import EpochFailed, HeadraceError, IncompatibleState, SparkError, StoreError
from headrace.failpoints import reach
from headrace.log.epochlog import COMMIT, PLAN, VOID, EpochLog, NoPatience, Waiter
from headrace.log.identity import claim_identity, read_identity
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.next_step import Finish, Run, Settings, Wait, decide
from headrace.plan.decisions.pace import Pace
from headrace.plan.decisions.skips import skipping, skips
from headrace.plan.decisions.transient import is_outage
from headrace.plan.decisions.verdict import RunAgain, judge
from headrace.plan.entries import CommitBody, VoidBody
from headrace.plan.epoch import Commit, Counters, Plan, Report, WorkOrder
from headrace.plan.ledger import Ledger
from headrace.plan.progress import RunSummary
from headrace.store.store import Store

COLLECT_EVERY = 16
ATTEMPTS_MAX = 4
"""How often a plan is tried before it is voided, and a smaller one made."""
VOIDS_MAX = 3
"""How many plans of one epoch are voided for the substrate's sake before giving up."""


class Substrate(Protocol):
    """What carries an epoch's rows: Spark, or this process."""

    spark: Any
    parallelism: int

    def run(self, task: WorkOrder) -> Sequence[Report]: ...
    def gone(self) -> str | None: ...
    def close(self) -> None: ...


class Driver:
    """One life of a driver over one checkpoint."""

    checkpoint: str
    log: EpochLog
    history: History

    def __init__(
        self,
        topology: Topology,
        fingerprint: str,
        store: Store,
        substrate: Substrate,
        options: Options,
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1000,
        seeds: Callable[[], int] = lambda: secrets.randbits(63),
    ) -> None:
        self.topology = topology
        self.graph = topology.graph
        self.store = store
        self.options = options
        self.spark = substrate.spark
        self.substrate = substrate
        self._clock = clock
        self._seeds = seeds
        self._fingerprint = fingerprint
        self._sources = Sources(topology, store, substrate.spark)
        self._pace = Pace(options.epoch_target_s, options.epoch_records)
        self._compactor = Compactor(store, topology, background=options.background)
        self._final_rounds = 0
        self._voids = 0
        self._epochs = 0
        self._renamed: dict[str, str] = {}
        self.notices: list[str] = []
        """What a start has found changed and does not refuse."""
        self.patience: Waiter = NoPatience()
        self.on_job: Callable[[bool], None] = lambda running: None
        self.on_lead: Callable[[], None] = lambda: None

    # A driver's life ------------------------------------------------------

    def follow(self) -> int:
        """Reads the log to its end, without a trace; gives the generation that leads."""
        if hasattr(self, "checkpoint"):
            require_present(self.store, self.checkpoint)
        elif read_identity(self.store) is not None:
            self.checkpoint = claim_identity(self.store, self.graph.name).id
        if known := hasattr(self, "log") and self.log.settled:
            for position, entry in self.log.follow():
                self.history.fold(position, entry)
        # Entries beyond a gap: the log was trimmed past what was read.
        if not known or self.log.last_position() > self.log.position:
            log = EpochLog(self.store)
            self.history = recover(log, self.options.retain_epochs)
            self.log = log  # only now: a look that failed half-way has shown nothing
        return self.log.generation

    def followed(self) -> Ledger:
        """The ledger as of the last look at the log."""
        return self.history.ledger if hasattr(self, "history") else Ledger()

    def open(self, lapsed: int | None = None) -> None:
        """Takes over the checkpoint: from here on, no older driver can commit.

        A standby takes over from generation `lapsed` only: StoodBack where another was first.
        """
        if lapsed is not None and hasattr(self, "checkpoint"):
            require_present(self.store, self.checkpoint)  # one that is away is not begun anew
        else:
            self.checkpoint = claim_identity(self.store, self.graph.name).id
        make_directories(self.store, self.topology)
        self.follow()
        if lapsed is not None and self.log.generation > lapsed:
            raise StoodBack
        reach("before-takeover")
        for position, entry in self.log.take_over():
            self.history.fold(position, entry)
            if lapsed is not None and entry.generation > lapsed:
                raise StoodBack
        self.log.patience = self.patience
        self.ledger = self.history.ledger
        self.ledger.generation = self.log.generation
        self._before = self.ledger.counters.copy()
        reach("after-takeover")
        self.on_lead()
        if (void := skipping(self.graph, self.ledger)) is not None:
            self.log.append(VOID, void)
            self.ledger.voided(void.skipped, void.records)
        self._renamed |= adopt_names(self.topology, self.ledger)
        known = self.ledger.keys
        self._keys = {n: k for n, k in keys_of(self.topology).items() if known.get(n) != k}
        refuse_orphaned_feedback(self.topology, self.ledger)
        self.settings = Settings(
            until=self.options.until,
            readers=self.substrate.parallelism,
            rings=rings_for(
                self.topology, self.ledger, self.options.slots, self.substrate.parallelism
            ),
            fingerprint=self._fingerprint,
            short_records_max=self.options.short_records_max,
            services=self.topology.uses_services(),
        )
        self._deliverer = Deliverer(
            self.topology, self.store, self.checkpoint, self.substrate.spark, self.log.check
        )
        try:
            self._deliverer.open(self.log.generation, self.ledger.epoch, self.history.nonces())
        except IncompatibleState:
            self.log.check()  # a sink is ahead where another driver has overtaken this one
            raise
        self._deliverer.catch_up([c for _, c in self.history.commits], self.history.retained)
        self._sources.prepare()
        self.notices = remember_changes(
            self.log, self.ledger, self._sources.compare(self.ledger, self.options.accept_changed)
        )
        self._sources.settle(self.ledger, self.history.released)

    def close(self) -> None:
        """Lets go of everything; what is committed stays."""
        with ExitStack() as stack:  # one that cannot close keeps none of the others open
            if hasattr(self, "_deliverer"):
                stack.callback(self._deliverer.close)
            stack.callback(self.substrate.close)
            stack.callback(self._compactor.close)
            stack.callback(self._sources.close)

    def stop(self) -> None:
        """Gives up the plan that the last commit carried: its job will not start at once (A6)."""
        if self.ledger.open_plan is not None:
            self._void(self.ledger.open_plan, "the driver was asked to stop")

    def step(self) -> Run | Wait | Finish:
        """One decision, carried out."""
        if self.ledger.commit_position > self.log.position:
            raise StoreError("this driver's last commit did not reach the log: start again")
        self._deliverer.settle()
        plan = self.ledger.open_plan
        if plan is not None and plan.fingerprint != self._fingerprint:
            self._void(plan, "the pipeline's code or wiring has changed since")
            plan = None
        if plan is None:
            decision = self._decide()
            if not isinstance(decision, Run):
                self.log.check()
                return decision
            reach("before-plan-write")
            self.log.append(PLAN, decision.plan)
            self.ledger.planned(decision.plan)
            reach("after-plan-write")
            plan = decision.plan
        self._run(plan)
        return Run(plan)

    # One epoch ------------------------------------------------------------

    def _decide(self) -> Run | Wait | Finish:
        wall = self._clock()
        offers = self._sources.offers(
            self.ledger, self._pace.next(), self.substrate.parallelism, wall
        )
        return decide(
            self.topology,
            self.ledger,
            offers,
            self.settings,
            wall=wall,
            seed=self._seeds(),
            final_rounds=self._final_rounds,
        )

    def _run(self, plan: Plan) -> None:
        began = time.perf_counter()
        commit = self._complete(plan)
        if commit is None:
            return
        self._deliverer.deliver_weak(commit, self.patience.through)
        self._commit(plan, commit)
        self._deliverer.deliver(commit, self.patience.through)
        seconds = time.perf_counter() - began
        self._pace.took(commit.counters.records, seconds)
        self._sources.settle(self.ledger, self.history.released)
        self._compactor.consider(self.history)
        if commit.epoch % COLLECT_EVERY == 0:
            self.patience.through(self._collect)
        self._tell(commit, seconds)

    def _complete(self, plan: Plan) -> Commit | None:
        """Runs a plan until its reports hold together; None where it had to be voided."""
        task = self.task(plan)
        make_ready(self.store, self.log, plan)
        reason = ""
        cause: Exception | None = None
        for _ in range(ATTEMPTS_MAX):
            reach("before-job")
            try:
                reports = self._job(task)
            except HeadraceError as error:
                self._give_up(plan, error)
                raise
            except Exception as error:
                if (told := final_failure(str(error), self.substrate.gone())) is not None:
                    self._give_up(plan, told)
                    raise told from error
                require_present(self.store, self.checkpoint)
                reason, cause = f"{type(error).__name__}: {error}", error
                continue
            reach("after-job")
            verdict = judge(self.topology, task, reports)
            if isinstance(verdict, Commit):
                adoptions = self._compactor.adoptions(plan, self.ledger)
                sealed = self.patience.through(lambda: self._sources.seal(plan.epoch, self.ledger))
                link = self.history.link(self.store.system.token_hex(8))
                return msgspec.structs.replace(verdict, adoptions=adoptions, sealed=sealed, **link)
            if isinstance(verdict, RunAgain):
                reason = verdict.reason
                continue
            self._give_up(plan, verdict)
            raise verdict
        self._voids += 1
        self._void(plan, f"failed {ATTEMPTS_MAX} times: {reason}")
        self._pace.halve()
        if self._voids >= VOIDS_MAX:
            raise EpochFailed(
                f"pipeline {self.graph.name!r}, epoch {plan.epoch}: failed "
                f"{ATTEMPTS_MAX * VOIDS_MAX} times, at the last for {reason[:2000]}. "
                "Nothing of it has happened; start again when the cause is mended"
            ) from cause
        return None

    def _give_up(self, plan: Plan, error: HeadraceError) -> None:
        """Voids a plan that failed; where that is not its fault it stays open, to be run again."""
        require_present(self.store, self.checkpoint)
        if not is_outage(error) and not isinstance(error, SparkError):
            self._void(plan, str(error))

    def _job(self, task: WorkOrder) -> Sequence[Report]:
        self.on_job(True)
        try:
            return self.substrate.run(task)
        finally:
            self.on_job(False)

    def _collect(self) -> None:
        collect(self.store, self.log, self.history, self._deliverer.acknowledged())

    def task(self, plan: Plan) -> WorkOrder:
        """What tasks need to know: the plan, and the state it starts from."""
        return WorkOrder(
            plan=plan,
            checkpoint=self.checkpoint,
            ins=self.ledger.ins,
            outs=self.ledger.outs,
            bases=self.ledger.bases(plan.rings),
            outbox=self.ledger.outbox,
        )

    def _commit(self, plan: Plan, commit: Commit) -> None:
        """Writes the commit, with the next plan where its job starts at once (A6)."""
        position = self.log.position + 1
        if self._renamed or self._keys:  # the next driver learns it from the log
            commit = msgspec.structs.replace(commit, renamed=self._renamed, keys=self._keys)
            self._renamed, self._keys = {}, {}
        self.history.committed(commit, position)
        self._final_rounds = self._final_rounds + 1 if plan.final else 0
        self._voids = 0
        body = CommitBody(commit, self._following(), retain=self.history.retain)
        if commit.epoch % SNAPSHOT_EVERY == 0:
            body.snapshot = self.ledger
            self.history.snapshotted(position)
        reach("before-commit-write")
        self.log.append(COMMIT, body)
        reach("after-commit-write")
        if body.next is not None:
            self.ledger.planned(body.next)
        self._epochs += 1

    def _following(self) -> Plan | None:
        """The next plan, if there is something to do at once."""
        if skips(self.graph):
            return None  # a crash skips what it finds open, so nothing is opened early
        try:
            msgspec.json.encode(decision := self._decide())  # it must not spoil the commit's entry
        except Exception:
            return None  # this epoch is done all the same; the next step meets the error again
        return decision.plan if isinstance(decision, Run) else None

    def _void(self, plan: Plan, reason: str) -> None:
        self.log.append(VOID, VoidBody(plan.epoch, reason[:10_000]))
        self.ledger.voided()

    # Telling --------------------------------------------------------------

    def _tell(self, commit: Commit, seconds: float) -> None:
        if self.options.on_epoch is None:
            return
        self.options.on_epoch(
            progress_of(
                self.graph.name, commit, self.ledger, self.counted(), seconds, self.watermark()
            )
        )

    def counted(self) -> Counters:
        """What this run has counted so far."""
        return self.ledger.counters.since(self._before)

    def watermark(self) -> int:
        """The lowest input watermark of all computations."""
        return lowest_watermark(self.graph, self.ledger)

    def summary(self, reason: str, *, whole: bool = False) -> RunSummary:
        """How the run ended; `whole`: with all runs of its checkpoint counted."""
        known = self.ledger
        epochs, counted = (known.epoch, known.counters) if whole else (self._epochs, self.counted())
        undelivered = self._deliverer.undelivered
        return summary_of(self.graph, epochs, counted, known, reason, undelivered)
