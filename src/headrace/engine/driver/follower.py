"""A follower: reads the log of a checkpoint while another driver leads, and can take over.

Until its own generation is in the log, it writes nothing into the checkpoint and deletes nothing
(protocol A4), except the identity of a checkpoint that has none yet. `take_over` appends that
generation, which fences every older driver, and returns the `Driver` that leads from there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import msgspec

from headrace.engine.driver.driver import Driver
from headrace.engine.driver.setup import Setup
from headrace.engine.driver.takeover import make_directories
from headrace.engine.history.evolution import refuse_unreadable
from headrace.engine.history.recovery import History, recover
from headrace.failpoints import reach
from headrace.log.epochlog import EpochLog, FailAtOnce, Waiter
from headrace.log.identity import (
    Identity,
    claim_identity,
    read_identity,
    replace_identity,
    require_present,
)
from headrace.log.missing import refuse_without_log
from headrace.plan.control import ASKED, STOPPED
from headrace.plan.deploy.code import STANDBY, START, GenerationBody
from headrace.plan.deploy.contract import Contract, contract_of
from headrace.plan.deploy.roles import LeadingRole, generation_of
from headrace.plan.ledger import Ledger
from headrace.plan.listener import Listeners
from headrace.plan.state.choice import refuse_other_state
from headrace.store.counts import UPKEEP, counted_as


class StoodBack(Exception):
    """Another driver took over first."""


class PipelineStopped(Exception):
    """The pipeline was stopped by a request, and only a start by a person ends that (I9)."""


class Follower:
    """The log of a checkpoint and the ledger that it adds up to, as of the last read."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.topology = setup.topology
        self.graph = setup.topology.graph
        self.store = setup.store
        self.substrate = setup.substrate
        self.listeners = Listeners(self.graph.name, setup.options.listeners)
        self.checkpoint = ""
        """The id of the checkpoint; empty until the first read has found one."""
        self.log = EpochLog(setup.store)
        self.history = History(setup.options.retain_epochs)
        self.has_read = False
        """Whether the log was read to its end at least once."""
        self._must_recover = True
        self.driver: Driver | None = None
        """The driver that leads since this follower took over."""

    @property
    def ledger(self) -> Ledger:
        """The sum of the log's entries."""
        return self.history.ledger

    @cached_property
    def contract(self) -> Contract:
        """The contract of this driver's code."""
        return contract_of(self.topology)

    def as_role(self, role: str, *, candidate: str = "", reason: str = "") -> LeadingRole:
        """As what this driver wants to lead."""
        options = self.setup.options
        return LeadingRole(
            role, self.setup.fingerprint, self.contract, candidate, options.replace,
            options.confirm, reason,
        )  # fmt: skip

    def follow(self, *, closely: bool = True) -> int:
        """Reads the log to its end and writes nothing; returns the generation that leads.

        With `closely=False` it costs few requests, however often it is called. It then notices
        that the log was trimmed past it, but not that somebody has deleted entries.
        """
        if self.checkpoint:
            require_present(self.store, self.checkpoint)
        elif read_identity(self.store) is not None:
            self.checkpoint = claim_identity(self.store, self.graph.name).id
        known = not self._must_recover and self.log.knows_its_last_put
        self._must_recover = True  # until the entries that are read here are folded in
        first = self.log.position + 1
        entries = list(self.log.follow()) if known else []
        # Asked after they were read: the directory of the oldest is trimmed first.
        if known and not self.log.is_trimmed(first) and not (closely and self._has_gap()):
            for position, entry in entries:
                self.history.fold(position, entry)
        else:
            log = EpochLog(self.store)
            self.history = recover(log, self.setup.options.retain_epochs)
            self.log = log  # assigned last, so that a failed read leaves the old log in place
            self.has_read = True
        self._must_recover = False
        return self.log.generation

    def _has_gap(self) -> bool:
        """Whether there are entries after an empty position."""
        return self.log.last_position() > self.log.position

    def take_over(
        self,
        lapsed: int | None = None,
        *,
        role: LeadingRole | None = None,
        on_probation: Callable[[], None] = lambda: None,
        waiter: Waiter | None = None,
        on_lead: Callable[[], None] = lambda: None,
        on_job: Callable[[bool], None] = lambda running: None,
    ) -> Driver:
        """Takes over the checkpoint: from here on, no older driver can commit.

        - `lapsed`: a standby takes over from this generation only; StoodBack if another
          driver was first.
        - `role`: as what it leads; by default a person's start, or a standby if `lapsed` is given.
          NotInForce or IncompatibleState if the log does not allow it (L1).
        - `on_probation`: called before a start while a deploy is on probation; it may refuse.
        - `waiter`: waits while the store or a sink is unavailable, once this driver leads.
        - `on_lead`: called when the generation is in the log.
        - `on_job`: called when a job begins (True) and when it has ended (False).
        """
        with counted_as(UPKEEP):  # no epoch waits for what is asked until the first one begins
            made = role or self.as_role(START if lapsed is None else STANDBY)
            return self._take_over(
                lapsed, made, on_probation, waiter or FailAtOnce(), on_lead, on_job
            )

    def _take_over(
        self,
        lapsed: int | None,
        role: LeadingRole,
        on_probation: Callable[[], None],
        waiter: Waiter,
        on_lead: Callable[[], None],
        on_job: Callable[[bool], None],
    ) -> Driver:
        if lapsed is not None and self.checkpoint:
            require_present(self.store, self.checkpoint)  # a standby creates no new checkpoint
        else:
            refuse_without_log(self.store)
            self.checkpoint = claim_identity(self.store, self.graph.name).id
        make_directories(self.store, self.topology)
        self.follow()
        if lapsed is not None and self.log.generation > lapsed:
            raise StoodBack
        refuse_other_state(self.ledger, self.setup.options.state, self.store.where())
        if self.ledger.code.probation is not None and role.role == START:
            on_probation()
        if role.role == START and self.ledger.code.probation is None:
            opens = self.setup.opens
            id = self.ledger.applied.id or self.ledger.identity or self.checkpoint
            opened = opens and partial(opens, id)
            refuse_unreadable(
                self.store, self.ledger, self.contract, self.topology, opened,
                partial(self.listeners.notice, "reading"),
            )  # fmt: skip
        made: list[GenerationBody] = []

        by_itself = self.setup.options.supervised or role.role != START

        def body(generation: int) -> GenerationBody:
            if self.ledger.control.stop == STOPPED and by_itself:
                raise PipelineStopped
            found = generation_of(self.ledger.code, role, generation)
            made.append(msgspec.structs.replace(found, by_itself=by_itself))
            return made[-1]

        body(self.log.generation + 1)  # refused before anything is written
        reach("before-takeover")
        for position, entry in self.log.take_over(waiter, body):
            self.history.fold(position, entry)
            if lapsed is not None and entry.generation > lapsed:
                raise StoodBack
        self.history.led(made[-1])
        self.ledger.generation = self.log.generation
        reach("after-takeover")
        on_lead()
        if self.ledger.identity not in ("", self.checkpoint):
            # A restore was interrupted after its entry: the log says which id counts.
            self.checkpoint = self.ledger.identity
            replace_identity(self.store, Identity(self.checkpoint, self.graph.name))
        driver = Driver(
            self.setup, self.checkpoint, self.log, self.history, self.listeners, waiter, on_job
        )
        self.driver = driver
        if self.ledger.control.stop == ASKED:
            return driver  # it completes the stop that was taken, and ends
        try:
            driver.begin()
        except BaseException:
            self.driver = None
            self._must_recover = True  # the driver has changed the ledger
            driver.close()
            raise
        return driver

    def step_back(self) -> None:
        """After a hand-over: it follows again, from the log alone."""
        self.driver = None
        self._must_recover = True

    def close(self) -> None:
        """Closes the substrate."""
        self.substrate.close()
