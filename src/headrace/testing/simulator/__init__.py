"""The simulator: the whole protocol under seeded schedules of faults, in memory, in one process.

    headrace chaos --seeds 2000             our own workloads, thousands of schedules
    simulate(my_pipeline, {"orders": [...]})      the same schedules over your pipeline

What runs is the engine's own code: driver, log, worker, state, compaction,
collection, delivery, file sinks. Simulated are the disk under it (`disk.py`,
`syscalls.py`), the clock, the random names, and Spark (`substrate.py`, `workers.py`).
Drivers run in fibers (`fiber.py`, `life.py`), so that one can sleep in the middle of
a call while another takes over. What a seed does is decided by `chance.py` alone.

The checkers share no code with the engine: `log_checker.py` reads the log as JSON,
`consumer.py` the output directories, and each workload knows its right answer.
"""

from headrace.testing.simulator.own import simulate
from headrace.testing.simulator.runner import SimulationFailed

__all__ = ["SimulationFailed", "simulate"]
