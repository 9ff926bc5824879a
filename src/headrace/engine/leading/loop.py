"""The loop of a run: wait for its turn, take over, run epoch after epoch, release the lease.

A takeover that fails is not retried: the user learns of a path without permission or of a full disk
before anything runs. After that, the run waits out an outage (`Options.give_up_s` says how long).
"""

from __future__ import annotations

import platform
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack

import msgspec

from headrace.engine.driver.driver import Driver
from headrace.engine.driver.follower import Follower, PipelineStopped, StoodBack
from headrace.engine.leading.lease import (
    DONE,
    RELEASED,
    RENEWALS,
    LeaderFinished,
    LeaseKeeper,
    LeaseObserver,
    Pulse,
    TakeOver,
)
from headrace.engine.leading.polling import Polling
from headrace.engine.leading.probation import await_silence
from headrace.engine.leading.retry import Retry, StopAsked
from headrace.engine.leading.standby import REHEARSALS, StoppedByRequest, stand_by
from headrace.engine.leading.status import StatusBoard, StatusKeeper, status_every_s
from headrace.engine.leading.watch import CodeWatch, DeployFailed, Superseded
from headrace.errors import Fenced, IncompatibleState, SparkError
from headrace.plan.control import ControlRequest, Outcome
from headrace.plan.decisions.hints import after_reading, before_running
from headrace.plan.decisions.next_step import Finish, Run, Wait
from headrace.plan.decisions.transient import Outage, is_outage
from headrace.plan.deploy.handover import HandedOver, LetGo
from headrace.plan.deploy.roles import NotInForce
from headrace.plan.progress import RunSummary

POLL_STANDBY_S = 1.0
POLL_CANDIDATE_S = 0.05
"""How often a candidate looks for the hand-over; on a store where requests cost, less often."""


class RunControl:
    """The controls of a run, and its visible state."""

    def __init__(self, stopping: threading.Event | None = None) -> None:
        self.stopping = stopping or threading.Event()
        """Set when this driver is to end; another may go on."""
        self.stop: ControlRequest | None = None
        """Given if the whole pipeline is to stop with it."""
        self.phase = "starting"
        """starting, standby, running, paused (by a request), guard, ended, failed."""
        self.error: BaseException | None = None
        """The error that the run failed with."""
        self.retry: Retry | None = None
        self.alive: Callable[[], bool] = lambda: True
        """Whether the loop has made a step recently."""
        self._asked: deque[tuple[ControlRequest, Future[Outcome]]] = deque()

    @property
    def outage(self) -> Outage | None:
        """The outage that the run waits for now."""
        return self.retry.outage if self.retry is not None else None

    def ask(self, request: ControlRequest) -> Future[Outcome]:
        """Asks something of the run; its loop decides it between two epochs."""
        future: Future[Outcome] = Future()
        self._asked.append((request, future))
        return future

    @property
    def asked(self) -> ControlRequest | None:
        """The first request that has no outcome yet."""
        return self._asked[0][0] if self._asked else None

    def decided(self, outcome: Outcome) -> None:
        """Notes the outcome of that request."""
        self._asked.popleft()[1].set_result(outcome)

    def refuse_all(self, error: BaseException | None) -> None:
        """The run has ended: what nobody has decided was never heard."""
        while self._asked:
            request, future = self._asked.popleft()
            why = f": {type(error).__name__}: {error}" if error is not None else ""
            future.set_exception(
                IncompatibleState(f"{request.verb}: the pipeline has ended in this process{why}")
            )


def run_loop(
    follower: Follower,
    control: RunControl | None = None,
    warm: Callable[[], None] = lambda: None,
    candidate: str = "",
) -> RunSummary:
    """Runs epochs until the end, or until asked to stop; a standby calls `warm`.

    `candidate` is the id of a deploy that was asked for: the run waits for the hand-over to it.
    """
    try:
        summary = _Loop(follower, control or RunControl(), warm, candidate).run()
    except Exception as error:
        follower.listeners.failure(error)
        raise
    follower.listeners.end(summary)
    return summary


class _Loop:
    """The state of one run."""

    def __init__(
        self, follower: Follower, control: RunControl, warm: Callable[[], None], candidate: str
    ) -> None:
        self._follower = follower
        self._candidate = candidate
        self._options = options = follower.setup.options
        self._control = control
        self._warm = warm
        self._tell = follower.listeners.notice
        system = follower.store.system
        self._pulse = Pulse(options.stuck_s, system)
        self._retry = Retry(
            options.give_up_s,
            control.stopping,
            self._tell,
            resting=self._pulse.rest,
            check=self._check,
            system=system,
        )
        self._leads = False
        self._keeper: LeaseKeeper | None = None
        self._status: StatusKeeper | None = None
        self._board = StatusBoard(follower.topology, system, platform.node())
        control.retry, control.alive = self._retry, self._pulse.alive

    def run(self) -> RunSummary:
        """The whole run, from the first read of the checkpoint to the release of the lease."""
        control = self._control
        with ExitStack() as opened:
            opened.callback(self._follower.close)
            try:
                driver = self._take_turn()
                while isinstance(driver, Driver):
                    with ExitStack() as leading:
                        leading.callback(driver.close)
                        summary = self._lead(driver)
                        if summary is not None:
                            return summary
                    summary = driver.summary("handed over")
                    driver = self._guard()
                    if not isinstance(driver, Driver):
                        return msgspec.structs.replace(summary, reason=driver)
                return self._nothing_done(driver)
            except StopAsked:  # during the takeover
                self._let_go(RELEASED, "stopped")
                return self._nothing_done("stopped")
            except PipelineStopped:
                self._tell("stopped", "the pipeline was stopped by a request; it stays so")
                return self._nothing_done("stopped")
            except Fenced as error:
                control.error = error
                if self._keeper is not None:
                    self._keeper.abandon()
                if self._status is not None:
                    self._status.abandon()
                raise
            except BaseException as error:
                control.error = cause = self._cause(error)
                self._let_go(RELEASED, f"{type(cause).__name__}: {str(cause)[:200]}")
                if cause is error:
                    raise
                raise cause from error
            finally:
                control.phase = "ended" if control.error is None else "failed"
                control.refuse_all(control.error)

    def _cause(self, error: BaseException) -> BaseException:
        """The error, or SparkError if Spark has ended, whatever the first error was."""
        if not isinstance(error, Exception) or isinstance(error, SparkError):
            return error
        ended = self._follower.substrate.gone()
        return error if ended is None else SparkError(ended)

    def _check(self) -> None:
        """Raises if waiting is pointless: another driver leads, or Spark has ended."""
        if not self._leads:
            return  # a driver that does not lead accepts any leader
        if ended := self._follower.substrate.gone():
            raise SparkError(ended)
        self._follower.log.check()

    def _take_turn(self) -> Driver | str:
        """The driver that leads; a standby first waits until the leader is dead or has released.

        Returns the reason instead if this run is not to lead.
        """
        options, follower = self._options, self._follower
        if not options.standby and not self._candidate:
            if not options.supervised:
                return self._take_over(None)
            follower.follow()
            if follower.ledger.code.probation is None:
                return self._take_over(None)
        self._control.phase = "standby"
        # A candidate has warmed up before it asked, and must see the hand-over at once.
        return self._stand_by(0 if self._candidate else REHEARSALS, was_leader=False)

    def _guard(self) -> Driver | str:
        """After a hand-over: waits until the deploy is confirmed, or takes it back."""
        self._control.phase = "guard"
        self._follower.step_back()
        return self._stand_by(0, was_leader=True)

    def _stand_by(self, rehearsals: int, *, was_leader: bool) -> Driver | str:
        length_s = self._options.lease_s or POLL_STANDBY_S
        mine = self._follower.setup.fingerprint
        watch = CodeWatch(mine, LeaseObserver(length_s), self._candidate)
        poll_s = min(POLL_STANDBY_S, length_s / RENEWALS)
        if self._candidate:  # no driver leads between the hand-over and its generation
            poll_s = max(POLL_CANDIDATE_S, self._follower.store.rewrite_interval_s / RENEWALS)
        stopping = self._control.stopping
        while True:
            verdict = stand_by(
                self._follower, watch, poll_s, stopping, self._tell, self._warm, rehearsals
            )
            if not isinstance(verdict, TakeOver):
                return self._not_needed(verdict, was_leader=was_leader)
            try:
                driver = self._take_over(verdict)
            except (StoodBack, NotInForce):
                self._tell("standby", "standby: another driver was first")
            except Exception as error:
                if not is_outage(error):
                    raise
                self._tell("standby", f"standby: cannot take over: {error}")
                self._let_go(RELEASED, "could not begin")
                self._keeper = None
                self._leads = False
                self._retry.wait(error)
                watch.unreadable()
            else:
                self._retry.over()
                self._tell(
                    "leading",
                    f"leading as generation {driver.log.generation}, epoch {driver.ledger.epoch}",
                )
                return driver

    def _not_needed(
        self,
        verdict: LeaderFinished | StoppedByRequest | Superseded | DeployFailed | None,
        *,
        was_leader: bool,
    ) -> str:
        """Why a run that follows ends without leading."""
        if verdict is None or isinstance(verdict, StoppedByRequest):
            return "stopped"
        if isinstance(verdict, DeployFailed):
            raise IncompatibleState(f"the deploy has not taken place: {verdict.text}")
        if isinstance(verdict, LeaderFinished):
            return "not_needed"
        if not verdict.was_in_force and not was_leader:
            raise IncompatibleState(
                f"{verdict.text}: a standby has the code in force (headrace deploy changes it)"
            )
        return "superseded"

    def _take_over(self, found: TakeOver | None) -> Driver:
        follower, role, lapsed = self._follower, None, None
        if found is not None:
            lapsed = found.generation
            role = follower.as_role(found.role, candidate=self._candidate, reason=found.text)
        driver = follower.take_over(
            lapsed,
            role=role,
            on_probation=lambda: await_silence(follower, self._control.stopping),
            waiter=self._retry,
            on_lead=self._begin_to_lead,
            on_job=self._pulse.job,
        )
        self._candidate = ""
        return driver

    def _begin_to_lead(self) -> None:
        """Called when the generation is in the log: from now on others wait for this driver."""
        follower, lease_s = self._follower, self._options.lease_s
        self._pulse.beat()  # a standby made no steps before, and is not stuck because of that
        self._leads = True
        if lease_s is not None:
            self._keeper = LeaseKeeper(
                follower.store,
                follower.log.generation,
                lease_s,
                lambda: follower.ledger.epoch,
                self._pulse,
            )
            if (every_s := status_every_s(follower.store)) is not None:
                generation, control = follower.log.generation, self._control
                follower.listeners.board = self._board
                self._status = StatusKeeper(
                    follower.store,
                    self._board,
                    generation,
                    lambda: (control.phase, control.outage),
                    every_s,
                )

    def _lead(self, driver: Driver) -> RunSummary | None:
        """Runs epochs; None if the driver has handed over, and is the guard now."""
        control = self._control
        control.phase = "running"
        for text in [*before_running(driver.topology, driver.ledger), *driver.notices]:
            self._tell("doubt", text)
        asked = False
        polling = Polling()
        try:
            while not control.stopping.is_set():
                self._pulse.beat()
                if (request := control.asked) is not None:
                    control.decided(self._retry.through(lambda: driver.control.own(request)))
                    continue
                step = self._retry.through(driver.step)
                self._retry.stepped()
                self._show_pause(driver)
                if isinstance(step, Run) and not asked:
                    counters = driver.counted()
                    asked = bool(counters.records or counters.dead)
                    for text in after_reading(driver.topology, driver.ledger, counters):
                        self._tell("doubt", text)
                if isinstance(step, Finish):
                    self._let_go(DONE, step.reason)
                    return driver.summary(step.reason)
                if isinstance(step, LetGo):
                    self._let_go(RELEASED, step.reason)
                    return driver.summary("rolled back")
                if isinstance(step, HandedOver):
                    self._hand_over(step)
                    return None
                now_s = driver.store.system.uptime_s()
                if not isinstance(step, Wait):
                    polling.busy(now_s)
                    continue
                until_s = None
                if step.until is not None:
                    until_s = (step.until - self._follower.setup.clock()) / 1e6
                control.stopping.wait(polling.pause_s(now_s, until_s))
            if control.stop is not None:
                driver.control.own(control.stop)
                driver.step()  # completes it
                self._let_go(DONE, "stopped")
                return driver.summary("stopped")
            driver.stop()
        except StopAsked:
            pass  # The outcome of an interrupted write is open: the next driver reads the log.
        except Exception:
            # A signal to all processes of a service ends Spark's JVM too. The stop is carried out
            # anyway: the open plan stays for the next driver.
            if not control.stopping.is_set() or not driver.substrate.gone():
                raise
        self._let_go(RELEASED, "stopped")
        return driver.summary("stopped")

    def _hand_over(self, step: HandedOver) -> None:
        """Lets the lease go at once: the candidate waits for the entry, and others for it."""
        self._let_go(RELEASED, f"handed over to {step.candidate}")
        self._keeper, self._leads = None, False
        self._tell("handed over", f"handed over to {step.candidate} after epoch {step.epoch}")

    def _show_pause(self, driver: Driver) -> None:
        """Shows whether the ledger says that the pipeline is paused."""
        control, paused = self._control, driver.ledger.control.paused
        if paused and control.phase != "paused":
            control.phase = "paused"
            self._tell("paused", f"paused after epoch {driver.ledger.epoch}, as asked")
        elif not paused and control.phase == "paused":
            control.phase = "running"
            self._tell("resumed", "going on, as asked")

    def _let_go(self, state: str, reason: str) -> None:
        if self._keeper is not None:
            self._keeper.end(state, reason)
        if self._status is not None:
            self._status.end(f"{state}: {reason}")
            self._status = None

    def _nothing_done(self, reason: str) -> RunSummary:
        return RunSummary(self._follower.graph.name, 0, 0, 0, 0, reason)
