"""The exchange as a standby or a leader, in a process of its own, without Spark or on it.

    python -m tests.spark.programs.stand_by DIRECTORY [--standby] [--spark] [--pace SECONDS]

Prints "ready", then "epoch N" and notices as they come, "done REASON" at the end; or "error KIND".
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.spark.pipelines import exchange, trades_in
from tests.spark.support import IN_PLACE, local_follower

from headrace import EpochProgress, HeadraceError
from headrace.engine.leading.loop import RunControl, run_loop
from headrace.engine.leading.signals import graceful_stop
from headrace.plan.listener import EpochCallback, NoticeCallback
from headrace.plan.progress import Notice


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--standby", action="store_true")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--pace", type=float, default=0.0)
    parser.add_argument("--lease", type=float, default=1.0)
    given = parser.parse_args()
    where: Path = given.directory
    pipeline = exchange(trades_in(where / "in"), where / "out")

    def tell(progress: EpochProgress) -> None:
        say(f"epoch {progress.epoch}")
        time.sleep(given.pace)

    def note(notice: Notice) -> None:
        say(f"{time.monotonic():.3f} {notice.text}")

    try:
        if given.spark:
            from tests.spark.conftest import start_spark

            scratch = where / f"spark-{'standby' if given.standby else 'leader'}"
            scratch.mkdir(exist_ok=True)
            spark = start_spark(scratch)
            say("ready")
            summary = pipeline.run(
                checkpoint=str(where / "checkpoint"), spark=spark, slots=2, epoch_records=25,
                on_epoch=tell, standby=given.standby, lease=f"{given.lease}s", on_notice=note,
                **IN_PLACE,
            )  # fmt: skip
            spark.stop()
        else:
            follower = local_follower(
                pipeline, where / "checkpoint", slots=2, epoch_records=25,
                give_up_s=None, lease_s=given.lease, standby=given.standby,
                listeners=(EpochCallback(tell), NoticeCallback(note)),
            )  # fmt: skip
            say("ready")
            control = RunControl()
            with graceful_stop(control.stopping.set):
                summary = run_loop(follower, control)
    except HeadraceError as error:
        say(f"error {type(error).__name__}")
        return 1
    say(f"done {summary.reason}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
