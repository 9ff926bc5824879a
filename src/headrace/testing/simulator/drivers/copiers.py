"""Visitors that copy: they verify a checkpoint, or back it up and restore the copy, as drivers run.

Whatever is committed, collected or trimmed meanwhile, and whatever fails: a verification finds no
damage, and a backup that was taken is one committed epoch, whole.
"""

from __future__ import annotations

from random import Random

from headrace.engine.primitives.backups.restoring import restore_backup
from headrace.engine.primitives.backups.taking import back_up
from headrace.engine.primitives.backups.verify_backups import verify_backups
from headrace.engine.primitives.stores.store_access import StoreAccess
from headrace.engine.primitives.verify import verify_checkpoint
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.errors import IncompatibleState, StoreError
from headrace.store.memory import MemoryStore
from headrace.store.store import Store
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.drivers.readers import Visitor
from headrace.testing.simulator.drivers.scene import Scene
from headrace.testing.simulator.machine.fiber import Killed


class Copier(Visitor):
    """A process that verifies, or takes a backup; it writes nothing but its pin."""

    kind = "copier"

    def __init__(self, scene: Scene, number: int) -> None:
        super().__init__(scene, number)
        own = Random(f"{scene.chance.seed} copier {number}")
        self._verifies = own.random() < 0.5
        self.haste = own.choice((0.1, 0.5, 0.9))

    def _run(self) -> None:
        store = self._scene.new_store()
        if self._verifies:
            found = verify_checkpoint(store)
            self._require(found.problems, f"a checkpoint at epoch {found.epoch}")
            self._scene.chance.note(f"copier {self.number} has verified epoch {found.epoch}")
        else:
            self._copy(store)

    def _copy(self, store: Store) -> None:
        place, to = MemoryStore(store.system), MemoryStore(store.system)
        report = back_up(store, place)
        self._require(verify_backups(place).problems, "a backup")
        restore_backup(place, to)
        self._require(verify_checkpoint(to).problems, "a restored checkpoint")
        copy = Checkpoint(to)
        for name in copy.computations:
            list(copy.scan(name))
        known = [c for c in self._scene.log.commits if c["epoch"] == report.epoch]
        if report.epoch and not any(_fits(copy.watermarks, each["ins"]) for each in known):
            raise Violation(f"copier {self.number}: epoch {report.epoch} was not committed so")
        self._scene.chance.note(f"copier {self.number} has a backup of epoch {report.epoch}")

    def _require(self, problems: object, what: str) -> None:
        if problems:
            raise Violation(f"copier {self.number}: {what} is damaged: {problems}")

    def check_end(self) -> None:
        error = self.failure()
        if error is None or isinstance(error, StoreError | OSError) or self.was_away:
            return  # a failing disk, or an outage
        raise Violation(f"copier {self.number}: {type(error).__name__}: {error}") from error


class StoreCopier(Visitor):
    """Takes a backup of a checkpoint with a state store; it must be the state of one epoch (O8)."""

    kind = "copier of the state store"

    def __init__(self, scene: Scene, number: int) -> None:
        super().__init__(scene, number)
        self.haste = Random(f"{scene.chance.seed} copier {number}").choice((0.5, 0.9, 1.0))

    def _run(self) -> None:
        store, scene = self._scene.new_store(), self._scene
        moments = getattr(scene.workload, "moments", None)
        if moments is None:
            return
        place, to = MemoryStore(store.system), MemoryStore(store.system)
        access = StoreAccess(store, opens=scene.opens)
        report = back_up(store, place, access=access)
        restore_backup(place, to)
        found = dict(Checkpoint(to).scan("Basket")) if report.epoch else {}
        moments.append(
            (report.epoch, {k: (v.get("owner"), v.get("items", {})) for k, v in found.items()})
        )
        scene.chance.note(f"{self.kind} {self.number} has a backup of epoch {report.epoch}")

    def check_end(self) -> None:
        error = self.fiber.error
        if error is None or isinstance(error, Killed):
            return
        self._scene.chance.note(f"{self.kind} {self.number} stops: {str(error)[:160]}")
        put_back = isinstance(error, IncompatibleState) and "relies on its having" in str(error)
        if not put_back and not isinstance(error, StoreError | OSError):
            raise Violation(f"{self.kind} {self.number} stopped: {error}") from error


def _fits(found: dict[str, int], committed: dict[str, int]) -> bool:
    return all(found.get(name) == value for name, value in committed.items())
