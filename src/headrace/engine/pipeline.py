"""`Pipeline`: the builder of the graph, with the methods that run it on Spark."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from headrace.errors import HeadraceError
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.deploy.settings import CONFIRM_AFTER, PROBATION_S
from headrace.plan.state.applied import SEGMENTS

if TYPE_CHECKING:
    from headrace.engine.job import Job
    from headrace.engine.primitives.imports.importing import ImportedState
    from headrace.model.values.time import Duration, Instant
    from headrace.plan.options import RunOptions
    from headrace.plan.progress import RunSummary
    from headrace.store.store import Store


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
        **options: Unpack[RunOptions],
    ) -> RunSummary:
        """Runs in this thread until the end.

        - `checkpoint`: a directory that the driver and all executors see, or the URL of a store:
          s3://, gs://, az:// or hdfs://.
        - `until`: "end" (sources have ended, the watermark goes to the end of time),
          "caught_up" (no input is left now; can be resumed) or None (for ever).
        - `slots`: parallel units per computation; Spark's default parallelism if not given.
        - `balance`: how load moves between slots while it runs: "even" (any slot to any other),
          "ring" (between neighbours on the ring) or "off".
        - `scale`: whether slots are added and removed with the load: "off", "on", or
          `Scale(above=0.7, ...)`.
        - `max_slots`: how many slots the scaler may give a computation; as many as Spark has cores
          if not given, or four times as many where Spark adds executors by itself.
        - `epoch_target`: how long an epoch should take; its size follows the measured speed. The
          first epochs are small, until the cost of a record is known.
        - `epoch_records`: a fixed epoch size instead.
        - `retain_epochs`: how many past epochs keep all that `headrace replay` needs.
        - `state`: where fields and maps of keys are kept: "segments", "files", "log", or the URL of
          a server; see the guide "Where state is kept".
        - `standby`: wait, warmed up, until the leading driver stops or dies, and take over then.
        - `lease`: a driver that has shown no sign of life for this long counts as dead; one that
          has made no step for `stuck_after`, while no job runs, shows none.
        - `give_up_after`: how long to wait for a checkpoint or a sink that is unavailable ("0s":
          not at all); for ever if not given. An error while opening fails at once.
        - `listeners`: objects (`Listener`) that follow the run: epochs, notices, its end. One that
          raises does not stop the run; its error is logged.
        - `on_epoch`, `on_notice`: functions, for a listener with one method.
        - `checkpoint_every`: how often state is made durable: every epoch (1, the default), every
          n epochs, or after a time ("10s"). With more than 1, state that is lost meanwhile is
          made again from the input. Where the checkpoint is a URL, it lies on executors' disks.
        - `deliver`: when sinks get an epoch: when it is "committed" (default), or when its state is
          "durable".
        - `accept_repairs`: lost state that cannot be made again as it was may be replaced by what
          the code makes now; rows that were delivered stay.
        - `replicas`: on a cluster, how many other executors keep a copy of each slot's state.
        - `local_cache`: how many bytes of state an executor may copy to its own disk ("1GB"), where
          the checkpoint is a URL or there are replicas; "0" for none. What was not used for the
          longest time is deleted.
        - `state_cache`: about how much memory the decoded objects of keys may take in each Python
          worker ("256MB"). State beyond it stays in mapped files.
        - `recovery`: what a slot loads when it comes to a process with nothing of it in memory:
          "lazy" (keys are read as they come) or "eager" (first the keys whose timers come next,
          then those that changed last).
        - `epoch_timeout`: on a cluster, when an epoch's job counts as hung and is run again; by
          default a minute, or twenty times the slowest epoch so far. It doubles with each attempt.
        - `replace`: whether other code than the log names may be put in force (default; the command
          needs --replace). `confirm`: confirms this code, if it is on probation.
        - `supervised`: a program starts it, not a person: it changes nothing that a person decided.
        - `straggler_after`: how much longer than usual (the median) an epoch's job may take before
          slots that hold it up are looked for. Such a slot gets a limit, and the rest of its input
          waits. By default twice `epoch_target`; None: never.
        - `overload`: what a slot with a limit does with the rest: "carry" (default) or "shed", for
          computations that do not say so themselves.
        - `accept_changed`: files that may have changed since they were read (a stream's name for
          a list or a generator). If such a file was not yet read to its end, reading continues
          with the first record at or after the old position; otherwise it counts as read in its
          present form.
        """
        # Imported when it runs: a Python worker that loads a user's module needs only the builder.
        from headrace.engine.starting import run_here

        try:
            return run_here(self.freeze, checkpoint, spark, options)
        except HeadraceError as error:
            shown = _brief(error)
        raise shown

    def start(
        self,
        *,
        checkpoint: str | os.PathLike[str],
        spark: Any = None,
        **options: Unpack[RunOptions],
    ) -> Job:
        """Runs in the background, for ever unless `until` says otherwise; see `run`."""
        from headrace.engine.starting import start_beside

        options.setdefault("until", None)
        try:
            return start_beside(self.freeze, checkpoint, spark, options)
        except HeadraceError as error:
            shown = _brief(error)
        raise shown

    def deploy(
        self,
        *,
        checkpoint: str | os.PathLike[str] | Store,
        spark: Any = None,
        confirm_after: int = CONFIRM_AFTER,
        probation: Duration = f"{PROBATION_S:.0f}s",
        check: str = "sample",
        mode: str = "",
        rekeyed: Mapping[str, str] | None = None,
        calls: str = "",
        moved: Sequence[str] = (),
        **options: Unpack[RunOptions],
    ) -> Job:
        """Puts this code in force on a checkpoint where other code of the pipeline runs.

        It checks itself beside the running code, takes over between two epochs, and leads on
        probation. Until it is confirmed the former code is its guard and takes back by itself.

        - `spark`: a session, or a function that starts one when all checks have passed.
        - `confirm_after`: in which of its epochs the deploy is confirmed.
        - `probation`: how long the guard waits for progress before it takes the deploy back.
        - `check`: "sample" or "all" of the stored keys are read and migrated before.
        - `mode`: "restore" holds outputs until it is confirmed, so that a rollback leaves no trace;
          "forward" refuses where that would be needed. By default the contracts decide.
        - `rekeyed`: computation -> "drop": its state is given up.
        - `calls="stay"`: calls to the outside that were made stay made after a rollback.
        - `moved`: streams whose source is the same data at another place.
        """
        from headrace.engine.deploy.candidate import deploy_options
        from headrace.engine.starting import deploy_to

        options.setdefault("until", None)
        try:
            chosen = deploy_options(
                confirm_after, probation, check, mode, rekeyed or {}, calls, moved
            )
            return deploy_to(self.freeze, checkpoint, spark, chosen, options)
        except HeadraceError as error:
            shown = _brief(error)
        raise shown

    def import_state(
        self,
        computation: str,
        data: Any,
        *,
        checkpoint: str | os.PathLike[str] | Store,
        key: str | Sequence[str] = (),
        written_at: Instant | None = None,
        slots: int | None = None,
        state: str = SEGMENTS,
    ) -> ImportedState:
        """Fills the state of a computation from a table, before the first epoch.

        - `data`: a pandas, Polars, Arrow or Spark frame, a list of dicts, or the path of Parquet
          files. One row is one key; columns have the names of fields and maps.
        - `key`: the column, or columns, of the key. By default those by which the computation is
          keyed, or `key`.
        - `written_at`: when the values were written; needed where they have a TTL.
        - `slots`: how many slots the computation begins with; 8 if the pipeline does not say it.
        - `state`: where the checkpoint keeps its state, as for `run`.
        """
        from headrace.engine.primitives.imports.importing import import_state
        from headrace.plan.state.choice import check_state
        from headrace.store.location import checkpoint_store

        store, choice = checkpoint_store(checkpoint), check_state(state)
        return import_state(
            self.freeze(), store, computation, data, key=key, written_at=written_at,
            slots=slots, state=choice,
        )  # fmt: skip


def _brief(error: HeadraceError) -> BaseException:
    from headrace.engine.spark.tracebacks import brief

    return brief(error)
