"""Reads requests, answers and the log as plain JSON and checks the promises of control (I).

It shares no code with the engine. It folds the log by itself: every position is decided once
and in order, a command takes effect once, the wanted state is the fold of what was taken. After a
stop was taken no epoch runs until a person starts the pipeline that was stopped; while it is
paused none runs at all. What a requester learns is what the log says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.machine.disk import Directory, File, SimulatedDisk

DAMAGE = b"no request"
"""What a schedule puts into the queue in place of a request."""


class ControlChecker:
    """The requests of one checkpoint, as its log decides them."""

    def __init__(self, disk: SimulatedDisk, root: str) -> None:
        self._disk, self._root = disk, root
        self.cursor = 0
        self.paused = False
        self.stop = ""
        self.decided: dict[str, dict[str, Any]] = {}
        """Nonce -> its outcome."""
        self._taken: set[str] = set()
        """The commands that have taken effect."""
        self.savepoints: dict[str, str] = {}
        """Name -> the file with its ledger."""
        self._files: dict[str, set[str]] = {}
        """Ledger of a savepoint -> every file that it names."""

    # The log --------------------------------------------------------------

    def entry(self, position: int, entry: dict[str, Any]) -> None:
        """Folds one entry of the log."""
        kind, body = entry["kind"], entry["body"]
        if kind == "generation":
            self._generation(position, body)
        elif kind == "control":
            self._outcomes(position, body.get("outcomes", []))
            if body.get("stopped"):
                if self.stop != "asked":
                    raise Violation(f"position {position} completes a stop that was not asked for")
                self.stop = "stopped"
        elif kind == "plan":
            self._must_run(position, "a plan")
        elif kind == "commit":
            self._must_run(position, "a commit")
            self._outcomes(position, body.get("outcomes", []))
            if body["next"] is not None:
                self._must_run(position, "the next plan")
            if body["snapshot"] is not None:
                self._snapshot(position, body["snapshot"]["control"])

    def _generation(self, position: int, body: dict[str, Any]) -> None:
        role = body.get("role", "start")
        person = bool(body.get("fingerprint")) and not body.get("by_itself")
        if self.stop == "stopped" and not person:
            raise Violation(f"position {position}: a {role} goes on from a stop")
        if person and self.stop == "stopped":
            self.stop = ""

    def _must_run(self, position: int, what: str) -> None:
        if self.stop:
            raise Violation(
                f"position {position} is {what}, though a stop was taken and no person has started "
                "the pipeline since"
            )
        if self.paused:
            raise Violation(f"position {position} is {what}, though the pipeline is paused")

    def _outcomes(self, position: int, outcomes: list[dict[str, Any]]) -> None:
        for found in outcomes:
            at, command = found["position"], found["command"]
            nonce = found["nonce"] or f"damage at {at}"  # which has none
            if at != self.cursor + 1:
                raise Violation(
                    f"position {position}: request {at} is decided after {self.cursor}: out of "
                    "order, or twice"
                )
            self.cursor = at
            if nonce in self.decided:
                raise Violation(f"position {position}: request {nonce} is decided twice")
            self.decided[nonce] = found
            if found["verdict"] != "taken":
                continue
            if command in self._taken:
                raise Violation(f"position {position}: command {command} takes effect twice")
            self._taken.add(command)
            self._effect(found)

    def _effect(self, found: dict[str, Any]) -> None:
        verb = found["verb"]
        if verb in ("pause", "resume"):
            self.paused = verb == "pause"
        elif verb == "stop":
            self.stop = "asked"
        elif verb == "savepoint":
            self.savepoints[found["about"]] = found["savepoint"]["snapshot"]
        elif verb == "drop-savepoint":
            del self.savepoints[found["about"]]

    def _snapshot(self, position: int, control: dict[str, Any]) -> None:
        says = (control["cursor"], control["paused"], control["stop"], set(control["savepoints"]))
        adds_up = (self.cursor, self.paused, self.stop, set(self.savepoints))
        if says != adds_up:
            raise Violation(
                f"position {position}: the ledger says {says} of requests, and what was taken adds "
                f"up to {adds_up}"
            )

    # Files ----------------------------------------------------------------

    def needs(self, name: str) -> bool:
        """Whether a savepoint keeps this file."""
        return any(name in files for files in self._saved())

    def check_files(self) -> None:
        """Every file of every savepoint exists."""
        for files in self._saved():
            for name in sorted(files):
                if self._disk.find(f"{self._root}/{name}") is None:
                    raise Violation(f"a savepoint needs {name}, which is missing")

    def _saved(self) -> Iterator[set[str]]:
        for snapshot in self.savepoints.values():
            if snapshot not in self._files:
                file = self._disk.find(f"{self._root}/{snapshot}")
                if not isinstance(file, File):
                    raise Violation(f"the log lists a savepoint, and {snapshot} is missing")
                ledger = json.loads(bytes(file.data).split(b"\n", 1)[1])
                self._files[snapshot] = {snapshot, *_named(ledger)}
            yield self._files[snapshot]

    # Answers --------------------------------------------------------------

    def check_learnt(self, learnt: dict[str, str]) -> None:
        """What requesters have learnt is what the log says."""
        for nonce, verdict in learnt.items():
            says = self.decided[nonce]["verdict"] if nonce in self.decided else "nothing"
            if says != verdict:
                raise Violation(f"requester {nonce} has learnt {verdict}, and the log says {says}")

    def check_answers(self, kept: int) -> None:
        """At the end every outcome that is kept is answered, and no request is left."""
        home = self._disk.find(f"{self._root}/control")
        names = home.names if isinstance(home, Directory) else {}
        for found in self.decided.values():
            at = found["position"]
            if at <= self.cursor - kept:
                continue
            file = names.get(f"{at:020d}.answer")
            if not isinstance(file, File):
                raise Violation(f"request {at} ({found['nonce']}) was never answered")
            answer = json.loads(bytes(file.data).split(b"\n", 1)[1])
            same = all(answer[key] == found[key] for key in ("position", "nonce", "verdict"))
            if not same:
                raise Violation(f"the answer to request {at} is {answer}, and the log says {found}")
            # A ring that is wanted when all input has ended is not carried out any more.
            due = found["verdict"] == "taken" and found["verb"] not in ("rescale", "compact")
            if due and f"{at:020d}.done" not in names:
                raise Violation(f"request {at} ({found['verb']}) was never said to be complete")
        # Nobody waits for what is no request: it may stay when all drivers have ended.
        left = [
            name
            for name, file in names.items()
            if name.isdigit() and int(name) > self.cursor
            if not (isinstance(file, File) and bytes(file.data) == DAMAGE)
        ]
        if left:
            raise Violation(f"requests {left} were never decided")


def _named(value: Any, key: str = "") -> Iterator[str]:
    """Every file that a ledger names, wherever it stands in it."""
    if isinstance(value, str) and value.startswith(("state/", "read/", "rings/")):
        yield value
    elif isinstance(value, dict):
        if "consumer" in value and "name" in value:
            yield f"outbox/{value['name']}"
        for inner, each in value.items():
            yield from _named(each, inner)
    elif isinstance(value, list):
        for each in value:
            yield from _named(each, key)
