"""`Pipeline`: the builder of the graph, with the verbs that run it on Spark."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headrace.engine.driver.follower import Follower
from headrace.engine.driver.options import SHORT_RECORDS_MAX, Options
from headrace.engine.driver.setup import Setup
from headrace.engine.job import GracefulStop, Job
from headrace.engine.leading.loop import Conduct, run_loop
from headrace.engine.spark.session import local_session
from headrace.engine.spark.substrate import SparkSubstrate, runs_user_code_while_reading
from headrace.engine.spark.tracebacks import brief
from headrace.engine.spark.warm_up import warm
from headrace.errors import HeadraceError, InvalidPipeline
from headrace.failpoints import arm_from_environment
from headrace.model.values.time import Duration, duration
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.fingerprint import fingerprint
from headrace.plan.progress import EpochProgress, Notice, RunSummary
from headrace.store.location import checkpoint_store

LEASE_S_MIN = 0.2
"""A shorter one would lapse while a busy machine looks elsewhere."""


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
        checkpoint: str | os.PathLike[str],
        spark: Any = None,
        until: str | None = "end",
        slots: int | None = None,
        epoch_target: Duration = "1s",
        epoch_records: int | None = None,
        retain_epochs: int = 16,
        on_epoch: Callable[[EpochProgress], None] | None = None,
        standby: bool = False,
        lease: Duration = "3s",
        stuck_after: Duration | None = "10m",
        give_up_after: Duration | None = None,
        on_notice: Callable[[Notice], None] | None = None,
        replicas: int = 0,
        epoch_timeout: Duration | None = None,
        accept_changed: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    ) -> RunSummary:
        """Runs in this thread until the end.

        - `checkpoint`: a directory that the driver and all executors see.
        - `until`: "end" (sources have ended, the watermark goes to the end of time),
          "caught_up" (nothing is left now; resumable) or None (for ever).
        - `slots`: parallel units per computation; Spark's default parallelism if not given.
        - `epoch_target`: how long an epoch should take; its size follows the pace. The first ones
          are small, until it is known what a record costs.
        - `epoch_records`: a fixed epoch size instead.
        - `retain_epochs`: how many past epochs keep all that `headrace replay` needs.
        - `standby`: wait, warm, until the driver that leads has gone, and take over then.
        - `lease`: a driver that has given no sign of life for so long has gone; one that has
          made no step for `stuck_after`, while no job runs, gives none.
        - `give_up_after`: how long to wait for a checkpoint or a sink that is away ("0s": not at
          all); for ever if not given. Opening fails at once.
        - `on_notice`: is told what happens between epochs, such as outages.
        - `replicas`: on a cluster, how many other executors keep each slot's state at hand.
        - `epoch_timeout`: on a cluster, when an epoch's job counts as hung and is run again; by
          default a minute, or twenty times the slowest epoch so far. It doubles with each try.
        - `accept_changed`: files that may have changed since they were read (a stream's name for
          a list or a generator). Of one that is not yet read to its end, reading goes on with the
          first record at or after the old position; one that is counts as read as it is now.
        """
        try:
            conduct = _conduct(standby, lease, stuck_after, give_up_after, on_notice)
            follower = self._follower(
                checkpoint, spark, until, slots, epoch_target, epoch_records, retain_epochs,
                on_epoch, replicas, epoch_timeout, accept_changed,
            )  # fmt: skip
            stopping = threading.Event()
            with GracefulStop(stopping):
                return run_loop(follower, stopping, _clock, self._warmed(follower, conduct))
        except HeadraceError as error:
            told = brief(error)
        raise told

    def start(
        self,
        *,
        checkpoint: str | os.PathLike[str],
        spark: Any = None,
        until: str | None = None,
        slots: int | None = None,
        epoch_target: Duration = "1s",
        epoch_records: int | None = None,
        retain_epochs: int = 16,
        on_epoch: Callable[[EpochProgress], None] | None = None,
        standby: bool = False,
        lease: Duration = "3s",
        stuck_after: Duration | None = "10m",
        give_up_after: Duration | None = None,
        on_notice: Callable[[Notice], None] | None = None,
        replicas: int = 0,
        epoch_timeout: Duration | None = None,
        accept_changed: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
    ) -> Job:
        """Runs in the background; see `run` for the arguments."""
        try:
            conduct = _conduct(standby, lease, stuck_after, give_up_after, on_notice)
            follower = self._follower(
                checkpoint, spark, until, slots, epoch_target, epoch_records, retain_epochs,
                on_epoch, replicas, epoch_timeout, accept_changed,
            )  # fmt: skip
            return Job(follower, _clock, self._warmed(follower, conduct))
        except HeadraceError as error:
            told = brief(error)
        raise told

    def _warmed(self, follower: Follower, conduct: Conduct) -> Conduct:
        if not conduct.standby:
            return conduct
        substrate, slots = follower.substrate, follower.setup.options.slots
        if not isinstance(substrate, SparkSubstrate):
            return conduct
        return msgspec.structs.replace(conduct, warm=lambda: warm(follower, substrate, slots))

    def _follower(
        self,
        checkpoint: str | os.PathLike[str],
        spark: Any,
        until: str | None,
        slots: int | None,
        epoch_target: Duration,
        epoch_records: int | None,
        retain_epochs: int,
        on_epoch: Callable[[EpochProgress], None] | None,
        replicas: int,
        epoch_timeout: Duration | None,
        accept_changed: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    ) -> Follower:
        until = "caught_up" if until == "caught-up" else until  # as the command calls it
        if until not in ("end", "caught_up", None):
            raise InvalidPipeline(f'until= is "end", "caught_up" or None, not {until!r}')
        if slots is not None and not 1 <= slots <= 10_000:
            raise InvalidPipeline(f"slots= is a number from 1 to 10,000, not {slots!r}")
        if not 0 <= replicas <= 100:
            raise InvalidPipeline(f"replicas= is a number from 0 to 100, not {replicas!r}")
        timeout_s = None
        if epoch_timeout is not None:
            timeout_s = duration(epoch_timeout, what="epoch_timeout=") / 1e6
        if epoch_records is not None and (type(epoch_records) is not int or epoch_records < 1):
            raise InvalidPipeline(f"epoch_records= is a number from 1 on, not {epoch_records!r}")
        if type(retain_epochs) is not int or retain_epochs < 1:
            raise InvalidPipeline(f"retain_epochs= is a number from 1 on, not {retain_epochs!r}")
        topology = self.freeze()
        arm_from_environment()
        store = checkpoint_store(checkpoint)
        session = spark or local_session()
        substrate = SparkSubstrate(
            session, topology, store, replicas=replicas, epoch_timeout_s=timeout_s
        )
        # The order of a set depends on the hash seed, which only Spark's workers fix: a driver
        # with a random one does not run computations itself.
        user_code = runs_user_code_while_reading(topology)
        alike = not sys.flags.hash_randomization or not user_code
        # Nor does it run those with a timeout: a worker that hangs can be ended.
        alike = alike and not (user_code and any(node.timeout_us for node in topology.fused))
        options = Options(
            short_records_max=SHORT_RECORDS_MAX if alike else 0,
            until=until,
            slots=slots,
            epoch_target_s=duration(epoch_target, what="epoch_target=") / 1e6,
            epoch_records=epoch_records,
            retain_epochs=retain_epochs + 1,  # an epoch starts from the state of the one before
            on_epoch=on_epoch,
            accept_changed=_names(accept_changed),
        )
        return Follower(
            Setup(topology, fingerprint(topology.graph), store, substrate, options, _clock)
        )


def _conduct(
    standby: bool,
    lease: Duration,
    stuck_after: Duration | None,
    give_up_after: Duration | None,
    on_notice: Callable[[Notice], None] | None,
) -> Conduct:
    lease_s = duration(lease, what="lease=") / 1e6
    if lease_s < LEASE_S_MIN:
        raise InvalidPipeline(f"lease= is at least {LEASE_S_MIN} s, not {lease!r}")
    return Conduct(
        give_up_s=_seconds(give_up_after, "give_up_after="),
        lease_s=lease_s,
        stuck_s=_seconds(stuck_after, "stuck_after="),
        standby=standby,
        on_notice=on_notice,
    )


def _names(given: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    some = [given] if isinstance(given, str | os.PathLike) else given
    return tuple(os.fspath(each) for each in some)


def _seconds(given: Duration | None, what: str) -> float | None:
    return None if given is None else duration(given, what=what) / 1e6


def _clock() -> int:
    return time.time_ns() // 1000
