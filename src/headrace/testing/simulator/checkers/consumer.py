"""A reader of a pipeline's output: it sees every epoch appear, and moves some epochs away.

It reads the output directories as any reader would, and knows the commits from the log alone. It
raises Violation where an epoch appears twice, out of order, before its commit, incomplete, or not
at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from headrace.testing.simulator.checkers.log_checker import LogChecker
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.faults.chance import Chance
from headrace.testing.simulator.machine.disk import Directory, File, Node, SimulatedDisk

Row = tuple[Any, int]
"""(value, timestamp)."""

_EPOCH = re.compile(r"epoch=(\d{12})")
_WEAK = re.compile(r"epoch=(\d{12})-weak-.*")


class SinkOutput:
    """One sink's directory, as its reader knows it."""

    def __init__(self, name: str, root: str, may_lose: bool) -> None:
        self.name, self.root = name, root
        self.may_lose = may_lose
        """Whether epochs may be skipped (at-most-once)."""
        self.epochs: dict[int, list[Row]] = {}
        """The rows that have appeared, by epoch."""
        self.nodes: dict[int, Node] = {}
        self.taken: set[int] = set()
        self.high_water = 0


class Consumer:
    """The reader of all sinks' directories."""

    def __init__(
        self,
        disk: SimulatedDisk,
        log: LogChecker,
        roots: Mapping[str, str],
        may_lose: Collection[str],
        chance: Chance,
        appeared: Callable[[str, int, list[Row]], None],
    ) -> None:
        self.disk, self.log, self._chance, self.appeared = disk, log, chance, appeared
        self.outputs = {
            name: SinkOutput(name, root, name in may_lose) for name, root in roots.items()
        }
        self._takes = 0.0 if chance.random.random() < 0.5 else 0.4

    def look(self) -> None:
        """Reads and checks the epochs that have appeared since the last call."""
        for output in self.outputs.values():
            home = self.disk.find(output.root)
            if isinstance(home, Directory):
                self._look_at(output, home)

    def delivered(self) -> dict[str, int]:
        """Sink -> the last epoch that need not be delivered to it again."""
        self.look()
        found = {}
        for name, output in self.outputs.items():
            known = output.high_water if output.may_lose else 0
            for commit in self.log.commits[known:]:
                if _rows(commit, name) and commit["epoch"] not in output.epochs:
                    break
                known = commit["epoch"]
            found[name] = known
        return found

    def high_water(self, sink: str) -> int:
        """The last epoch that a sink has, by its high-water mark."""
        marks = self.disk.find(f"{self.outputs[sink].root}/_high_water")
        names = marks.names if isinstance(marks, Directory) else ()
        return max((int(name) for name in names if name.isdigit()), default=0)

    def has_acknowledged(self, sink: str, epoch: int) -> bool:
        """Whether a sink says that it has an epoch."""
        return self.high_water(sink) >= epoch

    def weak(self) -> dict[str, dict[int, list[list[Row]]]]:
        """Sink -> epoch -> the rows of each weak delivery in its directory."""
        found: dict[str, dict[int, list[list[Row]]]] = {name: {} for name in self.outputs}
        for name, output in self.outputs.items():
            home = self.disk.find(output.root)
            if not isinstance(home, Directory):
                continue
            for entry in sorted(home.names):
                if (named := _WEAK.fullmatch(entry)) is not None:
                    rows = _read(home.names[entry])
                    found[name].setdefault(int(named[1]), []).append(rows)
        return found

    def check_deletion(self, path: str) -> None:
        """Directories may lose everything that their reader has seen."""

    def check_complete(self) -> None:
        """At the end, every committed row has appeared, and is there unless it was moved away."""
        self.look()
        for name, output in self.outputs.items():
            for commit in self.log.commits:
                epoch = commit["epoch"]
                if _rows(commit, name) and epoch not in output.epochs and not output.may_lose:
                    raise Violation(f"sink {name}: epoch {epoch} never appeared")
            for epoch in output.epochs:
                path = f"{output.root}/epoch={epoch:012d}"
                if epoch not in output.taken and self.disk.find(path) is None:
                    raise Violation(f"sink {name}: epoch {epoch} appeared and vanished")

    def _look_at(self, output: SinkOutput, home: Directory) -> None:
        names = sorted(home.names)
        for name in names:
            found = _EPOCH.fullmatch(name)
            if found is None:
                continue
            epoch, node = int(found[1]), home.names[name]
            if epoch in output.taken:
                raise Violation(f"sink {output.name}: epoch {epoch} is published a second time")
            if output.nodes.get(epoch) is node:
                continue
            rows = _read(node)
            if epoch in output.epochs:
                if rows != output.epochs[epoch]:
                    raise Violation(f"sink {output.name}: epoch {epoch} changed its rows")
                output.nodes[epoch] = node
                continue
            self.check_new(output, epoch, rows)
            output.epochs[epoch], output.nodes[epoch] = rows, node
            self.appeared(output.name, epoch, rows)
            if self._takes and self._chance.random.random() < self._takes:
                self._take(output, home, name, epoch)
        self._check_high_water(output, home)

    def check_new(self, output: SinkOutput, epoch: int, rows: list[Row]) -> None:
        """An epoch may appear now, with these rows."""
        self.log.catch_up()
        if epoch > len(self.log.commits):
            raise Violation(f"sink {output.name}: epoch {epoch} appears before its commit")
        expected = _rows(self.log.commits[epoch - 1], output.name)
        if len(rows) != expected:
            raise Violation(
                f"sink {output.name}: epoch {epoch} has {len(rows)} rows, its commit {expected}"
            )
        if output.may_lose:
            return
        if output.epochs and epoch < max(output.epochs):
            raise Violation(f"sink {output.name}: epoch {epoch} appears after a later one")
        for commit in self.log.commits[: epoch - 1]:
            if _rows(commit, output.name) and commit["epoch"] not in output.epochs:
                raise Violation(f"sink {output.name}: epoch {commit['epoch']} was left out")

    def _check_high_water(self, output: SinkOutput, home: Directory) -> None:
        water = self.high_water(output.name)
        if water < output.high_water:
            raise Violation(f"sink {output.name}: its high-water went back to {water}")
        output.high_water = water
        if output.may_lose:
            return
        for commit in self.log.commits[:water]:
            if _rows(commit, output.name) and commit["epoch"] not in output.epochs:
                raise Violation(
                    f"sink {output.name} says that it has epoch {water}, but epoch "
                    f"{commit['epoch']} has not appeared"
                )

    def _take(self, output: SinkOutput, home: Directory, name: str, epoch: int) -> None:
        """Moves an epoch away permanently; its files must be durable before."""
        self.disk.sync(home)
        self.disk.remove(f"{output.root}/{name}")
        self.disk.sync(home)
        output.taken.add(epoch)
        self._chance.note(f"a consumer takes epoch {epoch} of {output.name} away")

    def after_power_loss(self) -> None:
        """High-water markers that were not durable yet may be lost."""
        for output in self.outputs.values():
            output.high_water = 0
            output.nodes = {}


def _rows(commit: Mapping[str, Any], sink: str) -> int:
    """How many rows of an epoch the sink must show; weak rows are not counted."""
    files = (f for f in commit["staged"] if f["sink"] == sink and not f["weak"])
    return sum(file["rows"] for file in files)


def _read(node: Node) -> list[Row]:
    rows: list[Row] = []
    if isinstance(node, Directory):
        for name in sorted(node.names):
            file = node.names[name]
            if isinstance(file, File):
                rows += rows_in(file.data)
    return rows


def rows_in(data: bytes) -> list[Row]:
    """The rows of a published file."""
    pairs = (json.loads(line) for line in data.splitlines())
    return [(value, timestamp) for timestamp, value in pairs]
