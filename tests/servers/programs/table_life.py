"""One life of a driver that writes a table, without Spark; to be killed from outside.

    python -m tests.servers.programs.table_life CHECKPOINT EPOCHS

EPOCHS are so many records long. The environment is that of `tables`.
"""

from __future__ import annotations

import sys
import time

from tests.servers.programs import tables
from tests.spark.support import run_local

from headrace.plan.listener import Listener
from headrace.plan.progress import EpochProgress

REST_S = 0.05


class Resting(Listener):
    """Rests after each epoch, so that there is time for a kill."""

    def on_epoch(self, progress: EpochProgress) -> None:
        time.sleep(REST_S)


if __name__ == "__main__":
    checkpoint, records = sys.argv[1:]
    run_local(
        tables.pipeline(),
        checkpoint,
        slots=1,
        epoch_records=int(records),
        listeners=[Resting()],
    )
