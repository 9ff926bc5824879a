"""A reader of outputs in an object store: it reads the manifests, as any reader would.

It knows the commits from the log alone, and shares no code with the engine. It raises Violation
where an epoch appears before its commit, out of order, incomplete, with other rows than before, or
not at all; and where a file that an epoch consists of is deleted.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from headrace.testing.simulator.checkers.consumer import Consumer, Row, SinkOutput, rows_in
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.machine.disk import File

_NAME = re.compile(r"\d{12}(?:\.(\d{12}))?(?:-weak-[0-9a-f]+)?")


class ShownEpoch(NamedTuple):
    """An epoch as a manifest shows it."""

    rows: list[Row]
    complete: bool
    """Whether its rows are there, and were not passed over (at-most-once)."""


class ManifestConsumer(Consumer):
    """The reader of all sinks' manifests."""

    def look(self) -> None:
        """Reads and checks the epochs that have appeared since the last call."""
        for output in self.outputs.values():
            shown = self._shown(output, weak=False)
            for epoch in output.epochs:
                if epoch not in shown:
                    raise Violation(f"sink {output.name}: epoch {epoch} appeared and vanished")
            for epoch in sorted(shown):
                self._look_at_epoch(output, epoch, shown[epoch])
            output.high_water = max(shown, default=0)

    def _look_at_epoch(self, output: SinkOutput, epoch: int, found: list[ShownEpoch]) -> None:
        first = found[0]
        if any(other != first for other in found) and not output.may_lose:
            raise Violation(f"sink {output.name}: two manifests of epoch {epoch} differ")
        if epoch in output.epochs:
            if first.rows != output.epochs[epoch]:
                raise Violation(f"sink {output.name}: epoch {epoch} changed its rows")
            return
        if output.may_lose and not first.complete:
            return
        self.check_new(output, epoch, first.rows)
        last = max(output.epochs, default=0)
        if not output.may_lose and epoch != last + 1:
            raise Violation(f"sink {output.name}: epoch {epoch} follows epoch {last}")
        output.epochs[epoch] = first.rows
        self.appeared(output.name, epoch, first.rows)

    def high_water(self, sink: str) -> int:
        """The last epoch that has a manifest."""
        return max(self._shown(self.outputs[sink], weak=False), default=0)

    def has_acknowledged(self, sink: str, epoch: int) -> bool:
        """Whether a sink has the rows of an epoch. Two drivers may pass it over, one after another.

        A driver that slept does not know of a manifest without rows: it reads them when it opens.
        """
        shown = self._shown(self.outputs[sink], weak=False).get(epoch, [])
        return any(each.complete for each in shown)

    def weak(self) -> dict[str, dict[int, list[list[Row]]]]:
        """Sink -> epoch -> the rows of each weak delivery."""
        return {
            name: {
                epoch: [each.rows for each in found]
                for epoch, found in self._shown(output, weak=True).items()
            }
            for name, output in self.outputs.items()
        }

    def check_complete(self) -> None:
        """At the end every commit has its manifest."""
        self.look()
        for name, output in self.outputs.items():
            for commit in self.log.commits:
                if commit["epoch"] not in output.epochs and not output.may_lose:
                    raise Violation(f"sink {name}: epoch {commit['epoch']} never appeared")

    def check_deletion(self, path: str) -> None:
        """No file that a commit names is ever deleted, unless its epoch was passed over."""
        for name, output in self.outputs.items():
            data = f"{output.root}/data/"
            if not path.startswith(data):
                continue
            for commit in self.log.commits:
                own = {file["name"] for file in commit["staged"] if file["sink"] == name}
                if path.removeprefix(data) in own and self._has(output, commit["epoch"]):
                    raise Violation(f"{path} is deleted, but epoch {commit['epoch']} needs it")

    def _has(self, output: SinkOutput, epoch: int) -> bool:
        """Whether an epoch has its rows here, or may still get them."""
        shown = self._shown(output, weak=False).get(epoch)
        return shown is None or shown[0].complete

    def _shown(self, output: SinkOutput, *, weak: bool) -> dict[int, list[ShownEpoch]]:
        """Epoch -> how each manifest that has it shows it; the largest first, which counts.

        Where rows may be lost, a driver that slept may put a manifest again whose epoch is in a
        merged one, without its rows.
        """
        found: dict[int, list[ShownEpoch]] = {}
        nonces: set[str] = set()
        for name in sorted(self.disk.list(f"{output.root}/_epochs"), key=_size, reverse=True):
            file = self.disk.file(f"{output.root}/_epochs/{name}")
            head, _, tail = file.data.split(b"\n", 1)[1].removesuffix(b"\n").partition(b"\n")
            for each in json.loads(head):
                if bool(each["weak"]) != weak or each["weak"] in nonces:
                    continue
                if output.may_lose and each["epoch"] in found:
                    continue
                if weak:
                    nonces.add(each["weak"])
                found.setdefault(each["epoch"], []).append(self._read(output, each, tail))
        return found

    def _read(self, output: SinkOutput, epoch: dict[str, Any], tail: bytes) -> ShownEpoch:
        rows: list[Row] = []
        for described in epoch["files"]:
            rows += rows_in(self._bytes(output, epoch["epoch"], described, tail))
        return ShownEpoch(rows, epoch["complete"])

    def _bytes(self, output: SinkOutput, epoch: int, described: list[Any], tail: bytes) -> bytes:
        name, size, _, offset = (*described, None)[:4]
        if offset is not None:
            return tail[offset : offset + size]
        file = self.disk.find(f"{output.root}/data/{name}")
        if not isinstance(file, File) or len(file.data) != size:
            raise Violation(f"sink {output.name}: epoch {epoch} names {name}, which is not there")
        return file.data


def _size(name: str) -> int:
    """How many epochs a manifest has."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise Violation(f"{name} is not the name of a manifest")
    return int(found[1] or 1)
