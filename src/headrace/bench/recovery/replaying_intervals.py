"""The part of `headrace bench recovery --replay` about checkpoint intervals.

SEEP's second comparison: with a longer interval between checkpoints, recovery by state has more to
process again. Here input arrives one file per second, state is made durable every n epochs, and the
loss comes one epoch before the next checkpoint would: all Python workers are killed, and all files
of state that were only written are deleted, as a power loss may. Epochs since the last checkpoint
are then made again from the input, and compared with their commits.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from headrace import Pipeline
from headrace.engine.history.recovery import recover
from headrace.errors import HeadraceError
from headrace.log.epochlog import EpochLog
from headrace.store.disk import DiskStore

WAIT_S = 600.0
_LOOK_S = 0.02


def last_epoch_before(seconds: int, every: int) -> int:
    """The last epoch up to `seconds` after which the next one would be a checkpoint's."""
    return max(seconds - (seconds + 1) % every, 0)


def run_until(pipeline: Pipeline, epoch: int, checkpoint: str, **options: Any) -> None:
    """Runs until an epoch is committed, and leaves: nothing is made durable for that."""
    job = pipeline.start(checkpoint=checkpoint, until="end", **options)
    began_s = time.monotonic()
    try:
        while job.status().epoch < epoch:
            if time.monotonic() - began_s > WAIT_S:
                raise HeadraceError(f"epoch {epoch} was not committed in {WAIT_S:.0f} s")
            time.sleep(_LOOK_S)
    finally:
        job.leave()


def lose_written(checkpoint: str) -> int:
    """Deletes what was only written; returns how many epochs have lost something."""
    ledger = recover(EpochLog(DiskStore(Path(checkpoint))), 1).ledger
    slots = [slot for each in ledger.slots.values() for slot in each.values()]
    lost = {e.segment: e.last_epoch for slot in slots for e in slot.entries if e.written}
    for name in lost:
        (Path(checkpoint) / name).unlink(missing_ok=True)
    return len(set(lost.values()))
