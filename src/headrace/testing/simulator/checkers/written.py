"""Checks checkpoints of state: what a checkpoint covers is durable, and nothing goes before (M3).

It reads commits as plain JSON, and the disk. It shares no code with the engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.machine.disk import File, SimulatedDisk


class WrittenChecker:
    """Which deltas were only written, and the last checkpoint."""

    def __init__(self, disk: SimulatedDisk, root: str) -> None:
        self._disk, self._root = disk, root
        self._written: dict[str, int] = {}
        """Delta that was only written -> its epoch."""
        self.checkpoint = 0
        self.taken = 0

    def committed(self, commit: dict[str, Any]) -> None:
        """Notes the deltas of a commit that are only written."""
        for deltas in commit["deltas"].values():
            for delta in deltas.values():
                if delta["segment"] is not None and delta["written"]:
                    self._written[delta["segment"]] = commit["epoch"]

    def kept(
        self,
        said: dict[str, Any] | None,
        segments: Iterable[str],
        riding: Iterable[str],
        *,
        look: bool,
    ) -> bool:
        """Whether an entry says a checkpoint; `segments` count after it, and must be durable.

        With `look` the disk is asked.
        """
        checkpoint = (said or {}).get("checkpoint", 0)
        if not checkpoint:
            return False
        if checkpoint < self.checkpoint:
            raise Violation(f"the checkpoint of epoch {checkpoint} comes after a later one")
        self.checkpoint, rides = checkpoint, set(riding)
        self.taken += 1
        for segment in segments:
            epoch = self._written.get(segment)
            if epoch is not None and epoch <= checkpoint:
                raise Violation(
                    f"checkpoint of epoch {checkpoint}: {segment} counts, and was only written"
                )
            if epoch is None and segment not in rides and look:
                self._require_durable(checkpoint, segment)
        return True

    def _require_durable(self, checkpoint: int, segment: str) -> None:
        path = f"{self._root}/{segment}"
        file = self._disk.find(path)
        if not isinstance(file, File) or file.synced is None or self._disk.is_unsynced(path):
            raise Violation(f"checkpoint of epoch {checkpoint}: {segment} is not durable")

    def may_be_lost(self, segment: str) -> bool:
        """Whether a segment was only written, and no checkpoint has it."""
        return self._written.get(segment, 0) > self.checkpoint

    def check_deletion(self, name: str) -> None:
        """No driver deletes a delta that no checkpoint has."""
        if self.may_be_lost(name):
            raise Violation(f"{name} is deleted, and no checkpoint has its epoch")
