"""Testing pipelines without Spark: a harness with a fake clock, in milliseconds.

    with Harness(orders()) as h:
        h.send("orders", order("placed"), CRASH, order("placed", "o2"))
        h.advance("31m")
        h.crash(at="before-commit-write")
        assert [e["order"] for e in h.read("order_events")] == ["o1", "o2"]

`simulate` runs a pipeline under hundreds of seeded schedules of faults. `check_pipeline` runs it on
a few records of its real sources, and writes nothing.
"""

from headrace.testing.harness import CRASH, Crash, Harness
from headrace.testing.sampling.check import PipelineCheck, check_pipeline
from headrace.testing.simulator import SimulationFailed, simulate

__all__ = [
    "CRASH",
    "Crash",
    "Harness",
    "PipelineCheck",
    "SimulationFailed",
    "check_pipeline",
    "simulate",
]
