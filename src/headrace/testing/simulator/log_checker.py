"""Reads the epoch log as plain JSON and checks what it must never say.

It shares no code with the engine. Manifests are followed at 64 points of the key
space: rings of a simulation have their borders there, so what counts at a point
counts in the interval around it.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from typing import Any

from headrace.testing.simulator.disk import Directory, File, Node, SimulatedDisk

POINTS = 64
_STEP = 2**64 // POINTS


class Violation(BaseException):
    """A promise that was broken. Not an Exception: the engine survives those."""


class LogChecker:
    """What the log has said so far."""

    def __init__(self, disk: SimulatedDisk, root: str, per_directory: int, retain: int) -> None:
        self._disk, self._root, self._per_directory, self._retain = (
            disk, root, per_directory, retain,
        )  # fmt: skip
        self._files: list[File] = []
        self._entries: list[dict[str, Any]] = []
        self.note: Callable[[str], None] = lambda line: None
        self.away = False
        """Whether nobody can see the log now."""
        self.promised = 0
        """A driver was told that this position is on disk."""
        self._reset()

    def _reset(self) -> None:
        self.generations = [0]
        self.commits: list[dict[str, Any]] = []
        self.committed_by: list[int] = []
        """The generation that wrote each of them."""
        self.plans: list[dict[str, Any]] = []
        self.voids: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._open: dict[str, Any] | None = None
        self._counting: dict[str, list[list[str]]] = {}
        self._windows: deque[set[str]] = deque(maxlen=self._retain)

    @property
    def length(self) -> int:
        """How many entries there are."""
        return len(self._files)

    @property
    def generation(self) -> int:
        """The one that leads."""
        return self.generations[-1]

    def needs(self, segment: str) -> bool:
        """Whether a commit of the retention window counts on it."""
        return any(segment in window for window in self._windows)

    # Reading --------------------------------------------------------------

    def catch_up(self) -> None:
        """Reads on, and looks whether what was read before is still so."""
        if self.away:
            return
        names: dict[str, Node] = {}
        at = -1
        for position, known in enumerate(self._files, 1):
            if position // self._per_directory != at:
                at = position // self._per_directory
                home = self._disk.find(f"{self._root}/log/{at:06d}")
                names = home.names if isinstance(home, Directory) else {}
            found = names.get(f"{position:020d}")
            if found is not known and not self._trimmed(position):
                what = "is gone" if found is None else "was overwritten"
                raise Violation(f"log position {position} {what}")
        while (file := self._file(len(self._files) + 1)) is not None:
            text = file.data.split(b"\n", 1)[1]
            self._files.append(file)
            self._entries.append(json.loads(text))
            self._fold(len(self._files), self._entries[-1])

    def after_power_loss(self) -> None:
        """What had been promised must be there; what had not may be gone."""
        kept = len(self._files)
        while kept and self._file(kept) is None and not self._trimmed(kept):
            kept -= 1
        if kept < self.promised:
            raise Violation(
                f"log position {self.promised} was reported as written, and a power loss took it"
            )
        self._files, self._entries = self._files[:kept], self._entries[:kept]
        self._reset()
        tell, self.note = self.note, lambda line: None
        for position, entry in enumerate(self._entries, 1):
            self._fold(position, entry)
        self.note = tell

    def _file(self, position: int) -> File | None:
        directory = position // self._per_directory
        found = self._disk.find(f"{self._root}/log/{directory:06d}/{position:020d}")
        return found if isinstance(found, File) else None

    def _trimmed(self, position: int) -> bool:
        marker = f"{self._root}/log/{position // self._per_directory:06d}.trimmed"
        return self._disk.find(marker) is not None

    # Checking -------------------------------------------------------------

    def _fold(self, position: int, entry: dict[str, Any]) -> None:
        kind, generation, body = entry["kind"], entry["generation"], entry["body"]
        if kind == "generation":
            if generation <= self.generation:
                raise Violation(f"two drivers have generation {generation} (position {position})")
            self.generations.append(generation)
            return
        if generation != self.generation:
            raise Violation(
                f"position {position}: a driver of generation {generation} wrote a {kind} after "
                f"generation {self.generation} had taken over"
            )
        if kind == "plan":
            self._plan(body)
        elif kind == "void":
            if self._open is None:
                raise Violation(f"position {position} gives up a plan that is not open")
            self.voids.append((self._open, body))
            self._open = None
        elif kind == "commit":
            self._commit(body["commit"])
            if body["next"] is not None:
                self._plan(body["next"], " with the commit before it")

    def _plan(self, plan: dict[str, Any], how: str = "") -> None:
        if plan["epoch"] != len(self.commits) + 1:
            raise Violation(f"epoch {plan['epoch']} is planned after epoch {len(self.commits)}")
        if self.plans and plan["wall"] <= self.plans[-1]["wall"]:
            raise Violation(f"the wall time of plans went back at epoch {plan['epoch']}")
        self._open = plan
        self.plans.append(plan)
        last = ", the last" if plan["final"] else ""
        ranges = [read["range"] for task in plan["reads"] for read in task]
        records = sum(found["end"] - found["start"] for found in ranges)
        self.note(f"epoch {plan['epoch']} is planned{how}: {records} records{last}")

    def _commit(self, commit: dict[str, Any]) -> None:
        epoch = commit["epoch"]
        if epoch != len(self.commits) + 1:
            raise Violation(f"epoch {epoch} is committed after epoch {len(self.commits)}")
        if self._open is None or self._open["epoch"] != epoch:
            raise Violation(f"epoch {epoch} is committed without a plan")
        if commit["rings"] != self._open["rings"]:
            raise Violation(f"epoch {epoch} ran under other rings than were planned")
        for which in ("ins", "outs"):
            before = self.commits[-1][which] if self.commits else {}
            for name, mark in before.items():
                if commit[which].get(name, mark) < mark:
                    raise Violation(f"the {which[:-1]} watermark of {name} went back at {epoch}")
        self._open = None
        self.commits.append(commit)
        self.committed_by.append(self.generation)
        self.note(f"epoch {epoch} is committed")
        self._count(commit)

    def _count(self, commit: dict[str, Any]) -> None:
        """Follows which segments count where."""
        owners = {name: _owners(ring) for name, ring in commit["rings"].items()}
        for name, deltas in commit["deltas"].items():
            counting = self._counting.setdefault(name, [[] for _ in range(POINTS)])
            for slot, delta in deltas.items():
                if delta["segment"] is not None:
                    for point in range(POINTS):
                        if owners[name][point] == int(slot):
                            counting[point].append(delta["segment"])
        for adoption in commit["adoptions"]:
            name, entry = adoption["computation"], adoption["entry"]
            self.note(f"a merge of {name} is adopted")
            low, last = entry["interval"]
            for point, segments in enumerate(self._counting[name]):
                if owners[name][point] == adoption["slot"]:
                    segments[:] = [s for s in segments if s not in adoption["replaces"]]
                    if low <= point * _STEP <= last:
                        segments.append(entry["segment"])
        self._windows.append(
            set().union(*(point for of_name in self._counting.values() for point in of_name))
        )

    # Files ----------------------------------------------------------------

    def check_files(self) -> None:
        """Every file that the last commit counts on is there."""
        if self.away:
            return
        for segment in sorted(self._windows[-1]) if self._windows else ():
            if self._disk.find(f"{self._root}/{segment}") is None:
                raise Violation(f"epoch {len(self.commits)} counts on {segment}, which is gone")

    def check_deletion(self, path: str, delivered: Callable[[], dict[str, int]]) -> None:
        """Nobody deletes what somebody needs. `delivered`: sink -> its last epoch."""
        name = path.removeprefix(f"{self._root}/")
        if self.needs(name):
            raise Violation(f"{name} is deleted, but a commit of the window counts on it")
        last = delivered() if name.startswith("staged/") else {}
        for commit in self.commits if last else ():
            for file in commit["staged"]:
                waiting = commit["epoch"] > last[file["sink"]] and file["rows"]
                if name == f"staged/{file['sink']}/{file['name']}" and waiting:
                    raise Violation(f"{name} is deleted before its sink has it")
        for file in self.commits[-1]["outbox"] if self.commits else ():
            if name == f"outbox/{file['name']}":
                raise Violation(f"{name} is deleted before it was read")


def _owners(ring: dict[str, Any]) -> list[int]:
    """The slot of each point."""
    lows, owners = ring["lows"], ring["owners"]
    return [owners[bisect_right(lows, point * _STEP) - 1] for point in range(POINTS)]
