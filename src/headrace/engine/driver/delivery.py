"""Delivery of committed epochs to sinks, in epoch order, repeated until acknowledged.

A sink may have lost its memory (its output directory was deleted), or it may be new in the
pipeline. It cannot get everything again, because collection deletes rows that every sink has
acknowledged. Such a sink starts at the oldest epoch whose rows are all still staged, and a warning
says so. A sink that is ahead of the checkpoint is refused: the checkpoint was restored from an
older copy, and the sink would silently skip its next epochs.

Two copies of one checkpoint may run at the same time, with the same id and the same epoch numbers.
A driver may find that a sink already has an epoch which this driver has committed but not handed
over. Then it reads its log. Either a newer driver took the epoch from that log, and this driver is
fenced; or no driver of this checkpoint did, and the epoch comes from the copy. If both copies hand
the epoch over at once, the sink detects it by the commit that a claim or a high-water mark names
(`Sink.verify`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from headrace.engine.driver.outlets import has, high_water, named, refuse_one_target
from headrace.errors import (
    CorruptCheckpoint,
    HeadraceError,
    IncompatibleState,
    SinkError,
    StoreError,
)
from headrace.failpoints import reach
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.log.epochlog import FailAtOnce, Waiter
from headrace.log.identity import require_present
from headrace.log.riders import is_there, map_rider
from headrace.model.sink import Delivery, Opening, Part
from headrace.model.values.time import END
from headrace.pipeline.graph.graph import Outlet
from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import Commit, StagedFile
from headrace.store.store import Store

_logger = logging.getLogger("headrace.delivery")


class Deliverer:
    """Hands committed epochs to every sink of a pipeline."""

    def __init__(
        self,
        topology: Topology,
        store: Store,
        checkpoint: str,
        spark: Any,
        check: Callable[[], None],
        waiter: Waiter | None = None,
    ) -> None:
        """`check` raises Fenced if a newer driver has taken over; `waiter` waits for sinks."""
        self._waiter = waiter or FailAtOnce()
        self._outlets = topology.graph.outlets
        self._at_most_once = {
            o.name for o in self._outlets.values() if topology.is_at_most_once(o.stream)
        }
        """Sinks that get the rows of an epoch at most once, whatever happens."""
        self._check = check
        self._handed: set[tuple[str, int]] = set()
        """(sink, epoch) of those sinks that this driver has handed over, without an answer yet."""
        self._passed_over: set[tuple[str, int]] = set()
        """(sink, epoch) that were not handed over again; each is counted once."""
        self.undelivered = 0
        """Rows that were not delivered again, although it is unknown whether they had arrived."""
        self._store = store
        self._checkpoint = checkpoint
        self._place = store.where()
        self._spark = spark
        self._unread: StoreError | None = None
        """Why staged rows could not be read: an error of the checkpoint, not of the sink."""
        self._waiting: list[Commit] = []
        """Committed epochs that at least one sink has refused so far, oldest first."""
        self._held: Mapping[str, bytes] = {}
        """Rows that ride in the commit that this driver writes: they are delivered from memory."""
        self._positions: dict[int, int] = {}
        """Epoch -> the log position of its commit, for epochs that were read from the log."""
        self._opened: list[Outlet] = []
        self.holds = False
        """Whether committed epochs wait for the end of a probation (L6)."""
        self.up_to: Callable[[], int] = lambda: END
        """The last epoch that sinks may get now: with `deliver="durable"` a durable one (M7)."""
        self._begun: set[str] = set()
        """Sinks to which this driver has begun to hand over the first of the waiting epochs."""

    def open(self, generation: int, committed: int, commits: Mapping[int, str]) -> None:
        """Opens the sinks for a driver that took over; `commits` are its known nonces, by epoch."""
        for outlet in self._outlets.values():
            directory = f"{paths.SINKS}/{paths.safe(outlet.name)}"
            self._store.make_directory(directory)
            own = self._store.below(directory)
            self._opened.append(outlet)
            with named(outlet):
                outlet.sink.open(
                    Opening(self._checkpoint, generation, committed, own, commits, self._place)
                )
            water = outlet.sink.high_water()
            if water > committed:
                raise IncompatibleState(
                    f"sink {outlet.name!r} has epoch {water}, but the checkpoint is at epoch "
                    f"{committed}: was it put back to an older copy? Give the sink a fresh place, "
                    "or restore the checkpoint under a new id"
                )
        refuse_one_target(self._opened)

    def catch_up(
        self,
        found: Sequence[tuple[int, Commit]],
        retained: int = 1,
        new: Container[str] = (),
    ) -> None:
        """Delivers the retained epochs that a sink does not have, oldest first.

        `found` are the commits with their log positions. No driver can have collected files of the
        last `retained` epochs. `new` sinks are part of a deploy: they begin here, without a word.
        """
        found = [each for each in found if each[1].epoch <= self.up_to()]
        commits = [commit for _, commit in found]
        self._positions = {commit.epoch: position for position, commit in found}
        for outlet in self._outlets.values():
            water = high_water(outlet)
            lacking = [commit for commit in commits if commit.epoch > water]
            if outlet.name in self._at_most_once:
                for commit in lacking:
                    self._pass_over(outlet, commit)
                continue
            kept = self._still_staged(outlet, lacking)
            lost = lacking[: len(lacking) - len(kept)]
            if lost and lost[-1].epoch > commits[-1].epoch - retained:
                self._refuse_lost(outlet, lost[-1])
            if kept and kept[0].epoch > water + 1 and outlet.name not in new:
                _logger.warning(
                    "sink %r says that its last epoch is %d; epochs up to %d were delivered "
                    "before and are no longer kept, so it goes on at epoch %d",
                    outlet.name, water, kept[0].epoch - 1, kept[0].epoch,
                )  # fmt: skip
            for commit in kept:
                self._deliver_to(outlet, commit, high_water(outlet))

    def deliver(
        self, commit: Commit, riders: Mapping[str, bytes] | None = None, position: int = 0
    ) -> None:
        """Delivers an epoch to every sink that lacks it, after the epochs that wait before it.

        `position` is that of its commit: where its rows ride if they are delivered later.
        """
        self._waiting.append(commit)
        self._positions[commit.epoch] = position
        self._held = riders or {}
        self._waiter.through(self.deliver_waiting)

    def deliver_waiting(self) -> None:
        """Delivers the epochs that a sink has refused; does nothing if every sink has every epoch.

        No epoch is committed before this succeeds: the next driver looks for undelivered epochs
        in the retention window only, which may be one epoch long.
        """
        while self._waiting and not self.holds and self._waiting[0].epoch <= self.up_to():
            for outlet in self._outlets.values():
                self._deliver_own(outlet, self._waiting[0])
            self._positions.pop(self._waiting.pop(0).epoch, None)
            self._begun.clear()
            self._held = {}

    def _deliver_own(self, outlet: Outlet, commit: Commit) -> None:
        """Delivers an epoch that this driver has committed.

        No other driver can have delivered it; if one has, this driver must end.
        """
        water = high_water(outlet)
        mine = commit.epoch if outlet.name in self._begun else commit.epoch - 1
        if water > mine:
            self._check()  # a driver that took over writes its generation before it delivers
            with named(outlet):
                outlet.sink.verify(commit.epoch, commit.nonce)  # may raise a more exact error
            raise IncompatibleState(
                f"sink {outlet.name!r} has epoch {water}, which neither this driver has delivered "
                "nor another of this checkpoint: a copy of it writes there, too. This one has the "
                f"id {self._checkpoint} and lies at {self._place or 'no path'}. Let that copy go "
                "on and delete this one, or give this one another place to write to"
            )
        self._begun.add(outlet.name)
        self._deliver_to(outlet, commit, water)

    def _deliver_to(self, outlet: Outlet, commit: Commit, water: int) -> None:
        if water >= commit.epoch:
            with named(outlet):
                outlet.sink.verify(commit.epoch, commit.nonce)
            return
        reach("before-delivery")
        place = (outlet.name, commit.epoch)
        if place in self._handed:
            self._pass_over(outlet, commit)
            return
        if outlet.name in self._at_most_once:
            self._handed.add(place)
        strong = [f for f in commit.staged if f.sink == outlet.name and not f.weak]
        self._hand_over(outlet, commit, strong, weak=False)
        self._handed.discard(place)

    def _pass_over(self, outlet: Outlet, commit: Commit) -> None:
        """Skips an epoch whose rows may have arrived already and must not arrive a second time."""
        place = (outlet.name, commit.epoch)
        rows = sum(file.rows for file in commit.staged if file.sink == outlet.name)
        if rows and place not in self._passed_over:
            # Counted first: a sink may record the epoch and still raise.
            self._passed_over.add(place)
            self.undelivered += rows
            _logger.warning(
                "sink %r, epoch %d: whether its %d rows had arrived is not known, so they are not "
                "delivered again (at-most-once)",
                outlet.name, commit.epoch, rows,
            )  # fmt: skip
        self._hand_over(outlet, commit, [], weak=False, complete=False)  # advances its high water
        self._handed.discard(place)

    def _still_staged(self, outlet: Outlet, commits: Sequence[Commit]) -> list[Commit]:
        """The newest of these commits, back to the first one whose rows were collected."""
        if not commits:
            return []
        there = self._staged_files(outlet.name)
        kept: list[Commit] = []
        for commit in reversed(commits):
            if next(self._lacking(outlet, commit, there), None) is not None:
                break
            kept.append(commit)
        kept.reverse()
        return kept

    def _lacking(self, outlet: Outlet, commit: Commit, there: set[str]) -> Iterator[StagedFile]:
        """The files of a commit that a sink needs and that are nowhere; `there` are staged."""
        own = outlet.sink.own_store()
        strong = [f for f in commit.staged if f.sink == outlet.name and not f.weak]
        # The log may have been trimmed by a driver that retains fewer epochs.
        riding = any(f.rides for f in strong)
        logged = riding and is_there(self._store, self._positions[commit.epoch])
        for file in strong:
            if file.rides:
                found = logged
            else:
                found = has(own, file.name) if file.own else file.name in there
            if not found:
                yield file

    def _staged_files(self, sink: str) -> set[str]:
        return set(self._store.list(paths.staged_directory(sink)))

    def _refuse_lost(self, outlet: Outlet, commit: Commit) -> None:
        """Raises if rows that were never collected are missing: continuing would lose them."""
        self._require_present()
        for file in self._lacking(outlet, commit, self._staged_files(outlet.name)):
            own = outlet.sink.own_store() if file.own else None
            place = self._store.where(self._place_of(commit.epoch, file))
            raise CorruptCheckpoint(
                f"{place if own is None else own.where(file.name)} is missing: {file.rows} rows of "
                f"epoch {commit.epoch}, which sink {outlet.name!r} does not have. Restore the file "
                "from a copy; if it is lost for good, give the sink another name, and it begins "
                "with the next epoch"
            )
        self._unread = StoreError("the checkpoint was not there while its staged files were listed")
        raise self._unread

    def _place_of(self, epoch: int, file: StagedFile) -> str:
        """The name of the file that holds staged rows which are not in memory."""
        if not file.rides:
            return f"{paths.staged_directory(file.sink)}/{file.name}"
        return paths.log_entry(self._positions[epoch], self._store.system.limits)

    def deliver_weak(self, commit: Commit, riders: Mapping[str, bytes] | None = None) -> None:
        """Delivers the rows of weak productions, before the commit is written.

        An unavailable sink is waited for here. Running the job again instead would run every hook
        again, and show the other sinks their rows twice.
        """
        self._held = riders or {}
        for outlet in self._outlets.values():
            weak = [f for f in commit.staged if f.sink == outlet.name and f.weak]
            if weak:
                self._waiter.through(partial(self._hand_over, outlet, commit, weak, weak=True))

    def acknowledged(self) -> int:
        """The last epoch that every sink has acknowledged."""
        waters = [high_water(outlet) for outlet in self._outlets.values()]
        return min(waters, default=2**62)

    def tidy(self) -> None:
        """Lets the sinks delete what no delivery can need any more."""
        for outlet in self._opened:
            try:
                outlet.sink.tidy()
            except OSError as error:
                raise SinkError(
                    f"sink {outlet.name!r} cannot delete what it needs no more: {error}"
                ) from error

    def close(self) -> None:
        """Closes the sinks at the end of a run."""
        for outlet in self._opened:
            try:
                outlet.sink.tidy()
            except (OSError, HeadraceError) as error:
                _logger.debug("sink %r leaves files behind: %s", outlet.name, error)
            outlet.sink.close()

    def _hand_over(
        self,
        outlet: Outlet,
        commit: Commit,
        files: Iterable[StagedFile],
        *,
        weak: bool,
        complete: bool = True,
    ) -> None:
        epoch = commit.epoch
        ordered = sorted(files, key=lambda f: (f.label, f.name))
        parts = [self._part(outlet, epoch, file) for file in ordered]
        delivery = Delivery(
            epoch, self._checkpoint, parts, self._spark, weak, commit.nonce, self._place, complete
        )
        try:
            with named(outlet):
                outlet.sink.deliver(delivery)
        except Exception as error:
            of_sink = isinstance(error, StoreError) and error is not self._unread
            if isinstance(error, HeadraceError) and not of_sink:
                raise
            raise SinkError(
                f"sink {outlet.name!r} refused epoch {epoch}: {type(error).__name__}: {error}. "
                + (
                    "It was a weak delivery, before the commit; the epoch has not happened"
                    if weak
                    else "The epoch is committed, and is delivered when the pipeline starts again"
                )
            ) from error

    def _require_present(self) -> None:
        """Waits if a file is missing because the whole checkpoint is unavailable."""
        try:
            require_present(self._store, self._checkpoint)
        except StoreError as error:
            self._unread = error
            raise

    def _part(self, outlet: Outlet, epoch: int, file: StagedFile) -> Part:
        sink = outlet.name
        if file.own and (own := outlet.sink.own_store()) is not None:
            return Part(
                file.label, file.digest, partial(own.read, file.name), file.name, file.rows,
                file.size, is_own=True,
            )  # fmt: skip
        name = f"{paths.staged_directory(sink)}/{file.name}"
        if name in self._held:
            read_held = partial(self._held.__getitem__, name)
            return Part(file.label, file.digest, read_held, file.name, file.rows)

        def load() -> bytes:
            if file.rides:
                return map_rider(self._store, name, self._positions[epoch]).to_pybytes()
            return self._store.read(name)

        def read() -> bytes:
            try:
                data = load()
            except StoreError as error:
                self._unread = error
                raise
            except FileNotFoundError:
                self._require_present()
                data = load()  # the checkpoint may have become available again
            if digest_of(data) != file.digest:
                where = self._store.where(self._place_of(epoch, file))
                raise CorruptCheckpoint(
                    f"{where} is damaged: {file.rows} rows for sink {sink!r} "
                    "whose digest is not the committed one. Restore the file from a copy; nothing "
                    "of it was delivered"
                )
            return data

        return Part(file.label, file.digest, read, file.name, file.rows)
