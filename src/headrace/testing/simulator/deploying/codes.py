"""The codes of a deploy schedule: the same stage, in versions that can or cannot read each other.

Each numbers the records of a key and says which code did it. So an output shows for every record
whether it is there once, and whether its state went on where it should.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.record import Record
from headrace.model.sink import Sink
from headrace.model.source import Timing
from headrace.model.state import state
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.testing.simulator.workloads.records import LATENESS_US
from headrace.testing.simulator.workloads.source import SimulatedSource

A, B, C = "A", "B", "C"
KEYS = 3
MISTAKE = "a mistake in the new code"


class Stage(Computation):
    """Version 1."""

    seen: int = state(0)

    def __init__(self, by: str, fails_from: int | None = None) -> None:
        self.by, self.fails_from = by, fails_from

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        number = record.value["n"]
        if self.fails_from is not None and number >= self.fails_from:
            raise ValueError(MISTAKE)
        ctx.produce({"n": number, "key": ctx.key, "seen": self.next(), "by": self.by})

    def next(self) -> int:
        """The number of the next record of this key."""
        self.seen += 1
        return self.seen


class StageOfTwo(Stage, version=2):
    """Version 2, whose cells version 1 cannot read."""

    count: float = state(0.0)

    @classmethod
    def migrate(cls, fields: dict[str, Any], version: int) -> dict[str, Any]:
        return {"count": float(fields.get("seen", 0))}

    def next(self) -> int:
        """The number of the next record of this key."""
        self.count += 1.0
        return int(self.count)


class StageOfThree(StageOfTwo, version=3):
    """Version 3: the same fields as version 2."""

    @classmethod
    def migrate(cls, fields: dict[str, Any], version: int) -> dict[str, Any]:
        return super().migrate(fields, version) if version < 2 else fields


class AckedSource(SimulatedSource):
    """A source that reports what it is told about progress."""

    def __init__(
        self,
        timing: Timing,
        records: Mapping[str, Sequence[Any]],
        acknowledged: Callable[[str, int], None],
    ) -> None:
        super().__init__(timing, records)
        self._acknowledged = acknowledged

    def settle(self, split: str, position: int) -> None:
        self._acknowledged(split, position)

    def release(self, split: str, position: int) -> None:
        self._acknowledged(split, position)


class Codes:
    """The codes of one schedule, and which of them fail."""

    def __init__(self, random: Random, records: int) -> None:
        readable = random.random() < 0.33
        self._kinds: dict[str, type[Stage]] = {
            A: Stage,
            B: Stage if readable else StageOfTwo,
            C: Stage if readable else random.choice((StageOfTwo, StageOfThree)),
        }
        self._fails: dict[str, int] = {}
        for code in (B, C):
            if random.random() < 0.5:
                self._fails[code] = random.randrange(records)

    def topology(
        self,
        code: str,
        records: Mapping[str, Sequence[Any]],
        shown: Mapping[str, int],
        sink: Sink,
        acknowledged: Callable[[str, int], None],
        *,
        fails: bool,
    ) -> tuple[Topology, AckedSource]:
        """The pipeline of a code, in a process of its own; `fails`: with its mistake, if any."""
        p = PipelineBuilder("deploys")
        timing = Timing(timestamp="at", lateness=f"{LATENESS_US}us")
        source = AckedSource(timing, records, acknowledged)
        for split, count in shown.items():
            source.show(split, count)
        p.read("numbers", source)
        stage = self._kinds[code](code, self._fails.get(code) if fails else None)
        p.compute(stage, inputs={"numbers": key_of}, outputs="passed", name="Stage")
        p.stream("passed").write(sink)
        return p.freeze(), source


def key_of(value: Mapping[str, int]) -> int:
    """The key of a record."""
    return value["n"] % KEYS
