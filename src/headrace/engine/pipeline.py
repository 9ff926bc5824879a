"""`Pipeline`: the builder of the graph, with the verbs that run it on Spark."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from headrace.engine.driver import SHORT_RECORDS_MAX, Driver, Options
from headrace.engine.fingerprint import fingerprint
from headrace.engine.job import GracefulStop, Job, run_loop
from headrace.engine.session import local_session
from headrace.engine.spark import SparkSubstrate, runs_user_code_while_reading
from headrace.errors import InvalidPipeline
from headrace.failpoints import arm_from_environment
from headrace.log.store import DiskStore
from headrace.model.time import Duration, duration
from headrace.pipeline.builder import PipelineBuilder
from headrace.plan.progress import EpochProgress, RunSummary


class Pipeline(PipelineBuilder):
    """A graph of sources, computations and sinks that runs on Spark.

    p = Pipeline("counts")
    p.read("lines", sources.text("books/*.txt"))
    p.compute(WordCount, inputs={"lines": str.lower}, outputs="counts")
    p.stream("counts").write(sinks.jsonl("out/counts"))
    p.run(checkpoint="state/counts")
    """

    def run(
        self,
        *,
        checkpoint: str,
        spark: Any = None,
        until: str | None = "end",
        slots: int | None = None,
        epoch_target: Duration = "1s",
        epoch_records: int | None = None,
        retain_epochs: int = 16,
        on_epoch: Callable[[EpochProgress], None] | None = None,
    ) -> RunSummary:
        """Runs in this thread until the end.

        - `checkpoint`: a directory that the driver and all executors see.
        - `until`: "end" (sources have ended, the watermark goes to the end of time),
          "caught_up" (nothing is left now; resumable) or None (for ever).
        - `slots`: parallel units per computation; Spark's default parallelism if not given.
        - `epoch_target`: how long an epoch should take; its size follows the pace.
        - `epoch_records`: a fixed epoch size instead.
        - `retain_epochs`: how many past epochs keep all that `headrace replay` needs.
        """
        driver = self._driver(
            checkpoint, spark, until, slots, epoch_target, epoch_records, retain_epochs, on_epoch
        )
        stopping = threading.Event()
        with GracefulStop(stopping):
            return run_loop(driver, stopping, _clock)

    def start(
        self,
        *,
        checkpoint: str,
        spark: Any = None,
        until: str | None = None,
        slots: int | None = None,
        epoch_target: Duration = "1s",
        epoch_records: int | None = None,
        retain_epochs: int = 16,
        on_epoch: Callable[[EpochProgress], None] | None = None,
    ) -> Job:
        """Runs in the background; see `run` for the arguments."""
        driver = self._driver(
            checkpoint, spark, until, slots, epoch_target, epoch_records, retain_epochs, on_epoch
        )
        return Job(driver, _clock)

    def _driver(
        self,
        checkpoint: str,
        spark: Any,
        until: str | None,
        slots: int | None,
        epoch_target: Duration,
        epoch_records: int | None,
        retain_epochs: int,
        on_epoch: Callable[[EpochProgress], None] | None,
    ) -> Driver:
        if until not in ("end", "caught_up", None):
            raise InvalidPipeline(f'until= is "end", "caught_up" or None, not {until!r}')
        if slots is not None and not 1 <= slots <= 10_000:
            raise InvalidPipeline(f"slots= is a number from 1 to 10,000, not {slots!r}")
        if type(retain_epochs) is not int or retain_epochs < 1:
            raise InvalidPipeline(f"retain_epochs= is a number from 1 on, not {retain_epochs!r}")
        topology = self.freeze()
        arm_from_environment()
        store = DiskStore(checkpoint)
        substrate = SparkSubstrate(spark or local_session(), topology, store)
        # The order of a set depends on the hash seed, which only Spark's workers fix: a driver
        # with a random one does not run computations itself.
        alike = not sys.flags.hash_randomization or not runs_user_code_while_reading(topology)
        options = Options(
            short_records_max=SHORT_RECORDS_MAX if alike else 0,
            until=until,
            slots=slots,
            epoch_target_s=duration(epoch_target, what="epoch_target=") / 1e6,
            epoch_records=epoch_records,
            retain_epochs=retain_epochs + 1,  # an epoch starts from the state of the one before
            on_epoch=on_epoch,
        )
        return Driver(
            topology, fingerprint(topology.graph), store, substrate, options, clock=_clock
        )


def _clock() -> int:
    return time.time_ns() // 1000
