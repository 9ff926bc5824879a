"""One pipeline without Spark that dies again and again, in forked children.

    python -m tests.spark.programs.many_lives DIRECTORY EPOCH_RECORDS SEED [CHECKPOINT]

Every failpoint kills it, and SIGKILL does at random moments; then it is left alone. Prints one
line of JSON per life: how it ended and at which epoch. Forking saves the imports; nothing here has
started a thread yet.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import msgspec
from tests.spark.pipelines import exchange, trades_in
from tests.spark.support import FAILPOINTS, run_local

from headrace import Checkpoint, CorruptCheckpoint, failpoints
from headrace.limits import LIMITS
from headrace.store.location import checkpoint_store
from headrace.system import System

RANDOM_KILLS = 15
ENDED = 0
TIMES = {"before-takeover": 1, "after-takeover": 1, "before-collect": 1, "after-collect": 1}
TIMES |= {"after-merge-write": 1, "after-merge-copy": 1}


def checkpoint(where: Path) -> str:
    """A URL, or a directory."""
    return sys.argv[4] if len(sys.argv) > 4 else str(where / "checkpoint")


def life(where: Path, epoch_records: int, failpoint: str | None) -> None:
    """The child: runs until the end, or until it is killed."""
    if failpoint is not None:
        os.environ["HEADRACE_FAILPOINT"] = failpoint
        failpoints.arm_from_environment()
    pipeline = exchange(trades_in(where / "in"), where / "out")
    store = checkpoint_store(checkpoint(where))
    if failpoint is not None and "merge" in failpoint:
        # Deltas and results of merges as small as these would ride in commits.
        store.system = System(limits=msgspec.structs.replace(LIMITS, ride_bytes_max=1))
    run_local(pipeline, store, slots=3, epoch_records=epoch_records)


def live(where: Path, epoch_records: int, failpoint: str | None, seconds: float | None) -> str:
    child = os.fork()
    if child == 0:
        try:
            life(where, epoch_records, failpoint)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(ENDED)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "killed"
    return {ENDED: "ended", 137: "died"}.get(os.WEXITSTATUS(status), "failed")


def last_epoch(where: Path) -> int:
    # In a child, too: looking into a checkpoint starts threads of Arrow.
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            epoch = Checkpoint(checkpoint(where)).epoch
        except CorruptCheckpoint:
            epoch = 0
        os.write(write, str(epoch).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as answer:
        return int(answer.read() or -1)


def main() -> None:
    where, epoch_records, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    dice = random.Random(seed)
    # Plans are written on their own at first only; later they ride in commits.
    first = [("before-plan-write:1", None), ("after-plan-write:1", None)]
    lives: list[tuple[str | None, float | None]] = [
        (f"{name}:{dice.randint(1, TIMES.get(name, 3))}", None)
        for name in FAILPOINTS
        if not name.endswith("plan-write")
    ]
    lives += [(None, dice.uniform(0.02, 0.3)) for _ in range(RANDOM_KILLS)]
    dice.shuffle(lives)
    lives = [*first, *lives]
    for failpoint, seconds in [*lives, (None, None)]:
        how = live(where, epoch_records, failpoint, seconds)
        epoch = last_epoch(where)
        print(json.dumps({"failpoint": failpoint, "how": how, "epoch": epoch}), flush=True)


if __name__ == "__main__":
    main()
