"""The simulator: the whole protocol under seeded schedules of faults, in memory, in one process.

    headrace chaos --seeds 2000             our own workloads, thousands of schedules
    simulate(my_pipeline, {"orders": [...]})      the same schedules over your pipeline

The engine's own code runs: driver, log, worker, state, compaction, collection, delivery, file
sinks. Simulated are the disk (`machine/disk.py`, `machine/syscalls.py`), the clock, the random
names, and Spark (`drivers/substrate.py`, `drivers/workers.py`). Drivers run in fibers
(`machine/fiber.py`, `drivers/life.py`), so that one can sleep in the middle of a call while another
takes over. `faults/chance.py` alone decides what happens under a seed.

The checkers share no code with the engine: `checkers/log_checker.py` reads the log as JSON,
`checkers/consumer.py` the output directories, and each workload knows its right answer.
"""

from headrace.testing.simulator.own import simulate
from headrace.testing.simulator.runner import SimulationFailed

__all__ = ["SimulationFailed", "simulate"]
