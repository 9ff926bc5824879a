"""Checks which splits count as read to their end, and that none of them is read again.

It shares no code with the engine: it reads commits as plain JSON, and records as Arrow files.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.machine.disk import File, SimulatedDisk


class FinishedChecker:
    """Which splits are finished, and where that is recorded.

    Each finished split is in the ledger or in a file that the log names, and is never read again.
    """

    def __init__(self, disk: SimulatedDisk, root: str, rows_of: dict[str, frozenset[str]]) -> None:
        self._disk, self._root, self._rows_of = disk, root, rows_of
        self._listed: dict[str, set[str]] = {}
        """Stream -> finished splits that the ledger lists."""
        self._files: dict[str, list[str]] = {}
        """Stream -> the files that list the others."""

    def named(self) -> set[str]:
        """Every file that counts."""
        return {name for files in self._files.values() for name in files}

    def check_plan(self, plan: dict[str, Any]) -> None:
        """A plan reads nothing that was read to its end."""
        for read in (read for task in plan["reads"] for read in task):
            if read["split"] in self._finished(read["stream"]):
                raise Violation(
                    f"epoch {plan['epoch']} reads {read['split']} of {read['stream']} again, "
                    "which was read to its end"
                )

    def passed(self, splits: dict[str, dict[str, dict[str, Any]]]) -> None:
        """Splits count as read this far."""
        for stream, states in splits.items():
            ended = {split for split, state in states.items() if state["finished"]}
            self._listed.setdefault(stream, set()).update(ended)

    def committed(self, commit: dict[str, Any]) -> list[str]:
        """Applies a commit; returns the streams whose finished splits left the ledger."""
        for stream, sealing in commit["sealed"].items():
            name, rows = sealing["file"]
            found = self._rows(commit["epoch"], name)
            files = self._files.setdefault(stream, [])
            expected = set(self._listed.get(stream, ()))
            for replaced in sealing["replaces"]:
                if replaced not in files:
                    raise Violation(f"{name} replaces {replaced}, which does not count")
                expected |= self._rows_of[replaced]
            if found != expected or rows != len(expected):
                raise Violation(
                    f"epoch {commit['epoch']}: {name} lists {sorted(found)} as read to their end, "
                    f"and it should be {sorted(expected)}"
                )
            files[:] = [name, *(file for file in files if file not in sealing["replaces"])]
            self._listed[stream] = set()
        self.passed(commit["splits"])
        return list(commit["sealed"])

    def _finished(self, stream: str) -> set[str]:
        in_files = (self._rows_of[name] for name in self._files.get(stream, ()))
        return self._listed.get(stream, set()).union(*in_files)

    def _rows(self, epoch: int, name: str) -> frozenset[str]:
        """The splits in a file, which must be there before a commit names it."""
        if name not in self._rows_of:
            file = self._disk.find(f"{self._root}/{name}")
            if not isinstance(file, File):
                raise Violation(f"epoch {epoch} is committed and names {name}, which is not there")
            table = pa.ipc.open_file(pa.py_buffer(bytes(file.data))).read_all()
            keys = [msgspec.msgpack.decode(key) for key in table.column("key").to_pylist()]
            self._rows_of[name] = frozenset(split for split, part in keys if not part)
        return self._rows_of[name]
