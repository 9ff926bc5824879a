"""Pipelines whose hooks know where they run, roll dice, and can be made to wait.

A hook waits at a gate: a file `<gate>.closed` makes it leave a `<gate>.reached.<pid>` and stay
until the first file is gone. So a test can kill something between two levels, and not just hope to.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

from headrace import Computation, Context, Pipeline, Record, sinks, sources, state
from headrace.bench.cluster import executor_of, wait_for

WAIT_S = 300.0


class Gate:
    """A place where hooks can be held up, from another process."""

    def __init__(self, path: Path) -> None:
        self.closed = Path(f"{path}.closed")
        self.path = path

    def close(self) -> None:
        for reached in self._reached():
            reached.unlink(missing_ok=True)
        self.closed.touch()

    def open(self) -> None:
        self.closed.unlink(missing_ok=True)

    def _reached(self) -> list[Path]:
        return list(self.path.parent.glob(f"{self.path.name}.reached.*"))

    def await_hooks(self, count: int = 1) -> list[int]:
        """The processes whose hooks wait here, when there are that many."""
        found = wait_for(
            lambda: there if len(there := self._reached()) >= count else None,
            f"{count} hooks at the gate {self.path}",
            WAIT_S,
        )
        return [int(path.suffix[1:]) for path in found]

    def pass_through(self) -> None:
        if not self.closed.exists():
            return
        Path(f"{self.path}.reached.{os.getpid()}").touch()
        until = time.monotonic() + WAIT_S
        while self.closed.exists() and time.monotonic() < until:
            time.sleep(0.01)


class One(Computation):
    """Level 1: adds where it ran and how many records of its key came before; rolls dice."""

    seen: int = state(0)
    filler: bytes = state(b"")

    def __init__(self, gate: str, filler: int = 0) -> None:
        self.gate = Gate(Path(gate))
        self.filler_bytes = filler

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        self.seen += 1
        if self.filler_bytes:
            self.filler = bytes([self.seen % 256]) * self.filler_bytes
        self.gate.pass_through()
        ctx.produce(
            {
                **record.value,
                "one": executor_of(os.getpid()),
                "nth": self.seen,
                # Bare dice, which no two tries roll alike: points that somebody wins or loses.
                "points": random.randint(-1000, 1000),
                "player": random.randint(0, 9),
            },
        )


class Two(Computation):
    """Level 2: keeps the score, and passes on everything."""

    score: int = state(0)
    filler: bytes = state(b"")

    def __init__(self, gate: str, filler: int = 0) -> None:
        self.gate = Gate(Path(gate))
        self.filler_bytes = filler

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        self.gate.pass_through()
        value = record.value
        self.score += value["points"]
        if self.filler_bytes:
            self.filler = bytes([value["nth"] % 256]) * self.filler_bytes
        row = {**value, "two": executor_of(os.getpid()), "key2": ctx.key, "score": self.score}
        ctx.produce(row)


def two_levels(where: Path, *, second: str = "key", filler: int = 0) -> Pipeline:
    """in/*.jsonl -> One -> Two -> out; what One made is published too.

    With so many bytes as `filler` of every key, deltas are too large to ride in commits.
    """
    p = Pipeline("two levels")
    p.read("in", sources.jsonl(str(where / "in" / "*.jsonl"), timestamp="at", lateness="1h"))
    p.compute(One(str(where / "one"), filler), inputs={"in": "key"}, outputs="ones")
    p.compute(Two(str(where / "two"), filler), inputs={"ones": second}, outputs="twos")
    p.stream("ones").write(sinks.jsonl(where / "out" / "ones"))
    p.stream("twos").write(sinks.jsonl(where / "out" / "twos"))
    return p


def gates(where: Path) -> tuple[Gate, Gate]:
    return Gate(where / "one"), Gate(where / "two")


def records(count: int, keys: int) -> list[dict[str, Any]]:
    """Records with unique ids; a key's ids rise."""
    return [{"id": i, "key": f"k{i % keys}", "at": 1_700_000_000_000_000 + i} for i in range(count)]
