"""Checks deploys from the log as plain JSON, and from what readers of the output see (L).

It shares no code with the engine. What must hold at every moment: one commit per epoch; no driver
leads whose code is not in force at its position; a deploy is confirmed or taken back, never both;
in restore mode nothing of a probation is visible outside before its confirmation, and nothing ever
if it is taken back.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from headrace.testing.simulator.checkers.riders import read_entry
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.machine.disk import Directory, File, SimulatedDisk

OUT = "/out/passed"


class ProbationSeen(msgspec.Struct):
    """A probation, as the log shows it."""

    candidate: str
    code: str
    former: str
    mode: str
    epoch: int
    positions: dict[str, int]
    taken: bool = False
    commits: int = 0
    confirm_after: int = 0


class DeployChecker:
    """The log as read so far, and its checks."""

    def __init__(self, disk: SimulatedDisk, root: str, per_directory: int) -> None:
        self._disk, self._root, self._per_directory = disk, root, per_directory
        self.length = self.epoch = self.generation = 0
        self.code = ""
        """The code in force; in a probation the former one."""
        self.leading = ""
        self.probation: ProbationSeen | None = None
        self.emptied: set[int] = set()
        """Epochs that were taken back: they have no rows."""
        self.positions: dict[str, int] = {}
        self.handovers = self.confirmed = self.rolled_back = 0

    @property
    def in_force(self) -> str:
        """The code that a person should start; the first one where nothing has run."""
        return self.code or "A"

    def catch_up(self) -> None:
        """Reads new entries."""
        while (file := self._file(self.length + 1)) is not None:
            self.length += 1
            entry, _ = read_entry(self.length, bytes(file.data))
            self._fold(entry["kind"], entry["generation"], entry["body"])

    def _file(self, position: int) -> File | None:
        directory = position // self._per_directory
        found = self._disk.find(f"{self._root}/log/{directory:06d}/{position:020d}")
        return found if isinstance(found, File) else None

    def _fold(self, kind: str, generation: int, body: dict[str, Any]) -> None:
        if kind == "generation":
            self._generation(generation, body)
            return
        if generation != self.generation:
            raise Violation(f"a {kind} of generation {generation} after {self.generation}")
        if kind == "commit":
            self._commit(body)
        elif kind == "handover":
            self._handover(body)
        elif kind == "confirm":
            self._confirm()
        elif kind == "plan" and self.probation is not None and not self.probation.taken:
            raise Violation("a plan between the hand-over and its candidate")

    def _generation(self, generation: int, body: dict[str, Any]) -> None:
        if generation <= self.generation:
            raise Violation(f"two drivers have generation {generation}")
        self.generation, self.leading = generation, body["fingerprint"]
        role, found = body.get("role", "start"), self.probation
        if role == "candidate":
            mine = found is not None and found.candidate == body.get("candidate")
            if found is None or not mine or found.taken:
                raise Violation("a candidate leads without a hand-over to it")
            found.taken = True
        elif role == "guard":
            if found is None:
                raise Violation("rolled back what was confirmed, or never handed over")
            if body["fingerprint"] != found.former:
                raise Violation("the guard has other code than was in force before")
            self._roll_back(found)
        elif found is not None and not body.get("confirms"):
            raise Violation(f"a {role} leads while a deploy is on probation")
        elif role == "standby" and self.code not in ("", body["fingerprint"]):
            raise Violation(
                f"a standby with code {body['fingerprint']} leads while {self.code} is in force"
            )
        elif role == "start" and self.code not in ("", body["fingerprint"]):
            raise Violation(f"a start with {body['fingerprint']}, and {self.code} is in force")
        self.code = self.code or body["fingerprint"]

    def _roll_back(self, found: ProbationSeen) -> None:
        self.rolled_back += 1
        if found.mode == "restore":
            self.emptied.update(range(found.epoch + 1, self.epoch + 1))
            self.positions = dict(found.positions)
        self.probation = None

    def _handover(self, body: dict[str, Any]) -> None:
        if self.probation is not None:
            raise Violation("two probations at once")
        if body["epoch"] != self.epoch:
            raise Violation(f"handed over at epoch {body['epoch']}, after epoch {self.epoch}")
        self.handovers += 1
        self.probation = ProbationSeen(
            body["candidate"], body["fingerprint"], self.code, body["mode"], self.epoch,
            dict(self.positions), confirm_after=body["confirm_after"],
        )  # fmt: skip

    def _confirm(self) -> None:
        if self.probation is None:
            raise Violation("confirmed what is not on probation")
        if self.leading != self.probation.code:
            raise Violation("confirmed by other code than was handed over to")
        self.code, self.probation = self.probation.code, None
        self.confirmed += 1

    def _commit(self, body: dict[str, Any]) -> None:
        commit, found = body["commit"], self.probation
        if commit["epoch"] != self.epoch + 1:
            raise Violation(f"epoch {commit['epoch']} is committed after epoch {self.epoch}")
        if found is not None:
            if not found.taken:
                raise Violation("a commit between the hand-over and its candidate")
            found.commits += 1
            if found.commits > found.confirm_after:
                raise Violation(f"{found.commits} epochs on probation, not confirmed")
        elif self.leading != self.code:
            raise Violation(f"{self.leading} commits while {self.code} is in force")
        self.epoch = commit["epoch"]
        for splits in commit["splits"].values():
            self.positions.update({s: state["position"] for s, state in splits.items()})
        if body.get("confirms"):
            self._confirm()

    # What the outside sees ------------------------------------------------

    def acknowledged(self, split: str, position: int) -> None:
        """A source is told that no run reads before a position again."""
        self.catch_up()
        found = self.probation
        held = found is not None and found.mode == "restore"
        known = found.positions if found is not None and held else self.positions
        if position > known.get(split, 0):
            raise Violation(
                f"{split} is acknowledged up to {position}, and a rollback would read from "
                f"{known.get(split, 0)}"
            )

    def look(self) -> dict[int, dict[str, Any]]:
        """Record -> its row; raises if one is there twice, or too early."""
        self.catch_up()
        found = self.probation
        held = found.epoch if found is not None and found.mode == "restore" else None
        seen: dict[int, dict[str, Any]] = {}
        for name, node in self._epochs().items():
            epoch = int(name.removeprefix("epoch="))
            for row in _rows(node):
                if held is not None and epoch > held:
                    raise Violation(f"epoch {epoch} is visible, and the deploy is on probation")
                if epoch in self.emptied:
                    raise Violation(f"epoch {epoch} was taken back, and is visible")
                if row["n"] in seen:
                    raise Violation(f"record {row['n']} is visible twice: {seen[row['n']]}, {row}")
                seen[row["n"]] = row
        return seen

    def _epochs(self) -> dict[str, Directory]:
        out = self._disk.find(OUT)
        names = out.names if isinstance(out, Directory) else {}
        return {
            name: node
            for name, node in names.items()
            if name.startswith("epoch=") and isinstance(node, Directory)
        }

    def check_end(self, records: int, keys: int) -> None:
        """Every record is visible once, and each key was counted without a gap."""
        seen = self.look()
        if lost := [n for n in range(records) if n not in seen]:
            raise Violation(f"records {lost} were never visible; {self.code} is in force")
        for key in range(keys):
            numbers = sorted(row["seen"] for row in seen.values() if row["key"] == key)
            if numbers != list(range(1, len(numbers) + 1)):
                raise Violation(f"key {key} was counted as {numbers}")


def _rows(directory: Directory) -> list[dict[str, Any]]:
    return [
        json.loads(line)[1]
        for file in directory.names.values()
        if isinstance(file, File)
        for line in bytes(file.data).splitlines()
    ]
