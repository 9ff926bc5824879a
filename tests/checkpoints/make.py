"""Makes a checkpoint for `test_formats`, in the format of this Headrace.

    python -m tests.checkpoints.make

Run it when the format changes, before the old one can no longer be written, and commit what it
makes. It never overwrites: a checkpoint of a former release cannot be made again.
"""

from __future__ import annotations

import os
import random
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from tests.install.programs.tally import EPOCH_RECORDS, pipeline
from tests.install.tallies import sale
from tests.spark.support import local_follower

from headrace import Pipeline, sources
from headrace.engine.leading.loop import RunControl, run_loop
from headrace.limits import Limits
from headrace.log.sealed import FORMAT
from headrace.plan.listener import EpochCallback
from headrace.store.disk import DiskStore
from headrace.system import System

HERE = Path(__file__).parent
COUNT, STOPPED_AT = 300, 7
"""How many records there are, and after which epoch the run that made the checkpoint stopped."""


def generated(number: int, dice: random.Random) -> dict[str, Any]:
    return sale(number)


def fixture(where: Path) -> Pipeline:
    """The pipeline; its input is generated, so that a checkpoint is valid wherever it lies."""
    source = sources.generate(generated, count=COUNT, timestamp="at", lateness="1s")
    return pipeline(where, source)


def anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Whose file it was does not matter."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def main() -> None:
    made = HERE / f"format-{FORMAT}.tar.gz"
    if made.exists():
        raise SystemExit(f"{made} exists, and must stay as it is")
    # Some state rides in the log and some lies in segments, as in a large checkpoint.
    limits = msgspec.structs.replace(Limits(), ride_bytes_max=900, merge_segments_min=4)
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        where = Path()
        store = DiskStore(where / "state", System(limits=limits))

        control = RunControl()

        def follow(progress: Any) -> None:
            if progress.epoch == STOPPED_AT:
                control.stopping.set()

        options = {"slots": 2, "epoch_records": EPOCH_RECORDS, "until": "end"}
        listeners = (EpochCallback(follow),)
        run_loop(local_follower(fixture(where), store, listeners=listeners, **options), control)
        with tarfile.open(made, "w:gz") as archive:
            for name in ("state", "out"):
                archive.add(name, filter=anonymous)
    print(f"{made}: {made.stat().st_size} bytes")


if __name__ == "__main__":
    main()
