"""A running pipeline: the epoch loop in a thread, and the handle through which users control it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

from headrace.engine.driver.follower import Follower
from headrace.engine.leading.loop import RunControl, run_loop
from headrace.engine.primitives.backups.taking import BackupReport
from headrace.engine.primitives.durable import durable_epoch
from headrace.engine.replay.checkpoint import Checkpoint, KeyLookup, Place
from headrace.engine.spark.tracebacks import brief
from headrace.errors import IncompatibleState, InvalidPipeline
from headrace.log.identity import read_identity
from headrace.model.values.time import Duration, duration
from headrace.plan.control import (
    COMPACT,
    DROP_SAVEPOINT,
    MAKE_DURABLE,
    PAUSE,
    RESCALE,
    RESUME,
    ROLLBACK,
    SAVEPOINT,
    STOP,
    TAKEN,
    ControlRequest,
    Outcome,
)
from headrace.plan.progress import RunSummary, Status
from headrace.plan.summary import carried_rows, lowest_watermark


class Deployable(Protocol):
    """A pipeline that can be deployed: `Pipeline`."""

    def deploy(self, *, checkpoint: Any, **options: Any) -> Job: ...


class Job:
    """A pipeline that runs in the background. Use it as a context manager: leaving stops it."""

    def __init__(
        self,
        follower: Follower,
        warm: Callable[[], None] = lambda: None,
        candidate: str = "",
    ) -> None:
        """`warm` is called by a standby to keep ready what it will need.

        `candidate`: the id of a deploy that was asked for; the job waits for the hand-over.
        """
        self._follower = follower
        self._candidate = candidate
        self._warm = warm
        self._control = RunControl()
        self._summary: RunSummary | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"headrace-{follower.graph.name}", daemon=True
        )
        self._thread.start()

    def _run(self) -> None:
        try:
            self._summary = run_loop(self._follower, self._control, self._warm, self._candidate)
        except BaseException as error:
            self._error = error

    def wait(self, timeout: float | Duration | None = None) -> RunSummary:
        """Waits for the end, at most `timeout` (seconds or "2m"); raises the pipeline's error."""
        if isinstance(timeout, str | timedelta):
            timeout = duration(timeout, what="timeout=") / 1e6
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"pipeline {self._follower.graph.name!r} is still running")
        if self._error is not None:
            raise brief(self._error)
        if self._summary is None:
            raise RuntimeError("the pipeline ended without a summary")
        return self._summary

    def leave(self, wait: bool = True) -> RunSummary | None:
        """Ends this driver after the current epoch; a standby, or a new run, goes on from there."""
        self._control.stopping.set()
        return self.wait() if wait else None

    # What `headrace` also asks from outside -------------------------------

    def stop(self, wait: bool = True) -> RunSummary | None:
        """Stops the pipeline after the current epoch; its standbys end as well. Nothing is lost.

        A new run continues from there. While the checkpoint is unavailable, or where this is a
        standby, only this driver ends, as with `leave`.
        """
        if self._control.phase != "standby":
            self._control.stop = self._request(STOP, {})
        return self.leave(wait)

    def pause(self, wait: bool = True) -> Outcome | None:
        """Pauses the pipeline after the current epoch, until `resume`, whoever leads then."""
        return self._ask(PAUSE, {}, wait)

    def resume(self, wait: bool = True) -> Outcome | None:
        """Continues after `pause`."""
        return self._ask(RESUME, {}, wait)

    def rescale(self, computation: str, slots: int, wait: bool = True) -> Outcome | None:
        """Gives a computation another number of slots, between two epochs, without a restart."""
        return self._ask(RESCALE, {"computation": computation, "slots": slots}, wait)

    def savepoint(self, name: str, wait: bool = True) -> Outcome | None:
        """Keeps the state of the last commit under a name, until it is dropped."""
        return self._ask(SAVEPOINT, {"name": name}, wait)

    def drop_savepoint(self, name: str, wait: bool = True) -> Outcome | None:
        """Drops a savepoint: its files are deleted when nothing else needs them."""
        return self._ask(DROP_SAVEPOINT, {"name": name}, wait)

    def compact(self, computation: str | None = None, wait: bool = True) -> Outcome | None:
        """Asks for a merge of all segments of each slot; epochs go on meanwhile.

        It waits for the decision; the merges take effect with later commits.
        """
        return self._ask(COMPACT, {} if computation is None else {"computation": computation}, wait)

    def checkpoint(self, wait: bool = True) -> int:
        """Makes the state of the last epoch durable now; returns the last epoch that is."""
        if not self._follower.ledger.interval.is_durable and self.running:
            self._ask(MAKE_DURABLE, {}, wait)
        return durable_epoch(self._follower.ledger)

    @property
    def state(self) -> Checkpoint:
        """The state as the last commit left it: to be scanned, queried, compared, exported."""
        return Checkpoint(self._follower.store, opens=self._follower.setup.opens)

    def backup(self, to: Place) -> BackupReport:
        """Copies the state of the last epoch into another store, while the pipeline runs."""
        return self.state.backup(to)

    def deploy(self, pipeline: Deployable, **options: Any) -> Job:
        """Starts changed code of this pipeline beside it, which takes over between two epochs.

        Returns the job of the new code; this one becomes the guard, and ends when the deploy is
        confirmed. See `Pipeline.deploy` for the options.
        """
        follower = self._follower
        options.setdefault("spark", follower.substrate.spark)
        return pipeline.deploy(checkpoint=follower.store, **options)

    def rollback(self, wait: bool = True) -> Outcome | None:
        """Takes this code back while it is on probation: it lets go, and its guard goes on."""
        return self._ask(ROLLBACK, {}, wait)

    def _ask(self, verb: str, arguments: dict[str, Any], wait: bool) -> Outcome | None:
        """Asks the leader in this process; its decision is an entry of the log, as for any request.

        It waits for that entry, except in the thread of the run itself (a listener).
        """
        if not self.running or self._control.phase == "standby":
            what = "is a standby" if self.running else "has ended"
            raise IncompatibleState(
                f"{verb}: this run of {self._follower.graph.name!r} {what}; ask the driver that "
                f"leads: headrace {verb} {self._follower.store.where()}"
            )
        future = self._control.ask(self._request(verb, arguments))
        if not self.running:
            self._control.refuse_all(self._error)
        if not wait or threading.current_thread() is self._thread:
            return None
        outcome = future.result()
        if outcome.verdict != TAKEN:
            raise InvalidPipeline(f"{verb}: {outcome.verdict}: {outcome.message}")
        return outcome

    def _request(self, verb: str, arguments: dict[str, Any]) -> ControlRequest:
        token = self._follower.store.system.token_hex(8)
        checkpoint = self._follower.checkpoint
        return ControlRequest(checkpoint, token, token, verb, arguments, by="this process")

    @property
    def running(self) -> bool:
        """Whether the pipeline still runs."""
        return self._thread.is_alive()

    def get(self, computation: str, key: Any) -> dict[str, Any] | None:
        """The state of a key as the last commit left it; None if the key has no state (yet)."""
        return self.lookup(computation, key).state

    def lookup(self, computation: str, key: Any) -> KeyLookup:
        """The state of a key as the last commit left it, and the epoch of that commit."""
        topology, store = self._follower.topology, self._follower.store
        node = topology.keyed.get(computation)
        if node is None and computation in topology.graph.nodes:
            raise InvalidPipeline(f"computation {computation!r} has no key, and so no state")
        if read_identity(store) is None:  # during the start
            return KeyLookup(0, None)
        found = self.state
        if node is None:
            return found.lookup(computation, key)
        # A renamed computation gets its state with the next commit.
        names = [name for name in (computation, *node.aliases) if name in found.computations]
        return found.lookup(names[0], key) if names else KeyLookup(found.epoch, None)

    def status(self) -> Status:
        """The progress of the run: phase, epoch, watermark, records, state size, any outage, and
        what was asked of the store."""
        graph, ledger = self._follower.graph, self._follower.ledger
        error = self._error or self._control.error
        outage = self._control.outage if error is None else None
        phase = "failed" if error is not None else self._control.phase
        return Status(
            pipeline=graph.name,
            phase="waiting" if outage is not None else phase,
            running=self.running,
            epoch=ledger.epoch,
            generation=ledger.generation,
            watermark=lowest_watermark(graph, ledger),
            records=ledger.counters.records,
            late=ledger.counters.late,
            dead=ledger.counters.dead,
            state_bytes=ledger.state_bytes(),
            outage=outage,
            error=None if error is None else f"{type(error).__name__}: {error}",
            store=self._follower.setup.used(),
            carried=carried_rows(ledger),
            shed=ledger.counters.shed_of,
            limits={label: limit.records for label, limit in ledger.limits.items()},
            stuck=self.running and not self._control.alive(),
        )

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *exc: object) -> None:
        self._control.stopping.set()
        self._thread.join()
        if exc[0] is None and self._error is not None:
            raise brief(self._error)
