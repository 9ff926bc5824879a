"""Visitors that read: they replay an epoch, or read state, while drivers run.

The files that such a reader has pinned stay until it is done (C8). It gets the epoch as it was
committed, or an error that the epoch is no longer retained, which must then be true.
"""

from __future__ import annotations

import json
import re
from typing import Any

from headrace.engine.replay import checkpoint, replay
from headrace.errors import IncompatibleState, StoreError
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.drivers.life import Life
from headrace.testing.simulator.drivers.scene import Scene
from headrace.testing.simulator.machine.disk import Directory, File, SimulatedDisk
from headrace.testing.simulator.machine.fiber import Killed

_DETERMINANTS = re.compile(r"determinants/(\d{12})(\.gone|/[^.].*)")
"""A directory on its way out, or an object in one."""


class Visitor(Life):
    """A process that never leads: it comes to read, or to ask."""

    kind = "visitor"

    def __init__(self, scene: Scene, number: int) -> None:
        super().__init__(scene, number)
        self._dies_at = self._sleeps_at = ""
        self._dies_in = self.power_fails_in = None
        self.was_away = False
        """Whether an outage has refused one of its calls."""
        self.haste = 0.5
        """The probability that it gets a turn."""

    def refused(self) -> None:
        self.was_away = True

    def failure(self) -> BaseException | None:
        """The error that ended it, after a note; None if there is none. Raises a Violation."""
        error = self.fiber.error
        if error is None or isinstance(error, Killed):
            return None
        if isinstance(error, Violation):
            raise error
        said = f"{type(error).__name__}: {str(error)[:160]}"
        self._scene.chance.note(f"{self.kind} {self.number} stops: {said}")
        return error


class Reader(Visitor):
    """A process that reads, and writes nothing but its pin."""

    kind = "reader"

    def __init__(self, scene: Scene, number: int) -> None:
        super().__init__(scene, number)
        last = len(scene.log.commits)
        self.epoch = scene.chance.random.randint(max(1, last - 5), last)
        self._scans = scene.chance.random.random() < 0.3
        self._began = scene.now
        self.haste = scene.chance.choice((0.1, 0.5))

    def _run(self) -> None:
        scene, store = self._scene, self._scene.new_store()
        if self._scans:
            found = checkpoint.Checkpoint(store)
            for name in found.computations:
                list(found.scan(name))
            scene.chance.note(f"reader {self.number} has read the state of {found.epoch}")
            return
        again = replay.replay_epoch(scene.topology, store, self.epoch, prepared=True)
        repeats = getattr(scene.workload, "repeats", True)
        if not again.equal and repeats:
            raise Violation(
                f"reader {self.number}: epoch {self.epoch} is not what was committed: "
                f"{again.differences[:1]}"
            )
        scene.chance.note(f"reader {self.number} has run epoch {self.epoch} again")

    def check_end(self) -> None:
        error, scene = self.failure(), self._scene
        if error is None or isinstance(error, StoreError) or self.was_away:
            return  # a failing disk, or an outage
        expired = scene.now - self._began >= replay.PIN_S * 1_000_000
        kept = self.epoch > len(scene.log.commits) - scene.tuning.retain_epochs + 1
        # Deltas of past epochs that no checkpoint needed may be lost with their executors (M2).
        if isinstance(error, IncompatibleState) and (expired or not kept or scene.written.lost):
            return
        raise Violation(
            f"reader {self.number}, epoch {self.epoch}: {type(error).__name__}: {error}"
        ) from error


class Pins:
    """The files that were pinned when a driver began its collection."""

    def __init__(self, disk: SimulatedDisk, root: str) -> None:
        self._disk, self._root = disk, root
        self._seen: dict[int, dict[str, dict[str, Any]]] = {}
        """Driver -> the pins, by their paths."""

    def collection_begins(self, life: Life, now_s: float) -> None:
        """A driver is about to look for pins."""
        home = self._disk.find(f"{self._root}/pins")
        names = home.names if isinstance(home, Directory) else {}
        pins = {}
        for name, file in names.items():
            if isinstance(file, File) and not name.startswith("."):  # "." begins unfinished puts
                try:
                    pins[f"{self._root}/pins/{name}"] = json.loads(file.data.split(b"\n", 1)[1])
                except (ValueError, IndexError):
                    continue  # torn by a power loss: it pins nothing
        valid = {path: pin for path, pin in pins.items() if pin["expires"] > now_s}
        self._seen[life.number] = valid

    def collection_ends(self, life: Life) -> None:
        """The driver has finished its collection."""
        self._seen.pop(life.number, None)

    def check(self, life: Life, call: str, path: str) -> None:
        """No collection deletes what was pinned before it looked, and still is."""
        if call not in ("unlink", "rename", "delete"):
            return
        name = path.removeprefix(f"{self._root}/")
        for where, pin in self._seen.get(life.number, {}).items():
            if self._disk.find(where) is None:
                continue  # its owner has deleted it, perhaps before the collection looked
            taken = name in pin["files"]
            if name.startswith("log/") and name[-20:].isdigit():
                taken = 0 < pin["log_from"] <= int(name[-20:])
            if (found := _DETERMINANTS.fullmatch(name)) is not None:
                taken = int(found[1]) == pin["determinants"]
            if taken:
                raise Violation(f"driver {life.number} takes {name}, which a reader has pinned")
