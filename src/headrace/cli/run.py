"""`headrace run module:name --checkpoint DIR`: runs a pipeline until it ends or is stopped."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Unpack

import click

from headrace.cli import options
from headrace.cli.spark import spark_session, use_py_files
from headrace.cli.targets import load_pipeline
from headrace.engine.driver.keeping import require_interval
from headrace.engine.leading.signals import STOPPING, ended_by_sigterm, graceful_stop
from headrace.observe.metrics.json_log import JsonLog
from headrace.observe.metrics.prometheus import PrometheusListener
from headrace.observe.progress import terminal_view
from headrace.plan.listener import Listener
from headrace.plan.options import RunOptions, checkpoint_every
from headrace.plan.progress import Notice
from headrace.store.asking import require_exact_puts
from headrace.store.location import checkpoint_store

if TYPE_CHECKING:
    from headrace.engine.job import Job


@click.command(
    epilog="""\b
Examples:
  headrace run shop.orders:pipeline --checkpoint state/orders
  headrace run shop.orders:pipeline --checkpoint state/orders --until end
  headrace run shop.orders:pipeline --checkpoint /shared/orders --master spark://host:7077 \\
    --conf spark.executor.memory=2g --py-files build/shop.zip
  headrace run shop.orders:pipeline --checkpoint /shared/orders --standby
  headrace run shop.orders:pipeline --checkpoint state/orders --scale on --max-slots 16
  headrace run shop.orders:pipeline --checkpoint state/orders --checkpoint-every 10s
  headrace run shop.orders:pipeline --checkpoint s3://bucket/orders
  headrace run shop.orders:pipeline --checkpoint state/orders --state log
  headrace run shop.orders:pipeline --checkpoint state/orders --metrics-port 9095""",
)
@click.argument("target", metavar="MODULE:NAME")
@click.option(
    "--checkpoint",
    required=True,
    metavar="DIR|URL",
    help="Where state and progress are kept. Start again with the same one to continue.",
)
@click.option(
    "--until",
    type=options.until,
    help="Stop when all input has ended, or when nothing is left for now.  [default: never]",
)
@click.option(
    "--retain",
    "retain_epochs",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    metavar="N",
    help="How many past epochs keep all that `headrace replay` needs.",
)
@options.state
@options.spark
@options.slots
@options.balance
@options.scale
@options.max_slots
@options.epoch_target("1s")
@options.epoch_records
@click.option(
    "--standby",
    is_flag=True,
    help="Wait, warmed up, until the driver that leads this checkpoint ends; then take over.",
)
@click.option(
    "--supervised",
    is_flag=True,
    help="Started by a program (systemd and the like) again and again: end, with status 0, where "
    "`headrace stop` has stopped the pipeline; stand by where a deploy is on probation; never put "
    "other code in force.",
)
@click.option(
    "--replace",
    is_flag=True,
    help="Put this code in force, though the log names other code.",
)
@click.option(
    "--confirm",
    is_flag=True,
    help="Confirm this code, if its deploy is on probation and its driver has ended.",
)
@options.lease
@options.give_up_after
@options.checkpoint_every
@options.deliver
@options.accept_repairs
@options.replicas
@options.local_cache
@options.state_cache
@options.recovery
@options.epoch_timeout
@options.straggler_after
@options.overload
@click.option(
    "--accept-changed",
    multiple=True,
    metavar="FILE",
    help="A file that has changed since it was read, and is refused: continue at the old position "
    "in the new file, or count it as read if it was read to its end. May be given several times; "
    "for a list or a generator, the stream's name.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(min=0, max=65535),
    metavar="PORT",
    help="Show metrics for Prometheus at http://127.0.0.1:PORT/metrics, and /healthz beside them; "
    "0: any free port.",
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="What the run writes about itself: a view for people, or one JSON object per line.",
)
def run(
    target: str,
    checkpoint: str,
    master: str | None,
    conf: dict[str, str],
    packages: tuple[str, ...],
    py_files: tuple[str, ...],
    metrics_port: int | None,
    log_format: str,
    **options: Unpack[RunOptions],
) -> None:
    """Run a pipeline.

    MODULE:NAME names a Pipeline, or a function that returns one; modules are looked for in the
    current directory first. SIGINT (Ctrl-C) and SIGTERM stop it after the current epoch, and a new
    start with the same checkpoint continues from there. A standby takes over when the driver dies
    or is stopped, and ends with it when all input was read. While the checkpoint or a sink is
    unavailable, the pipeline waits and says why.

    The exit status is 0 after an end or a signal, 1 after an error, 2 for wrong options, 130 after
    a second signal.
    """
    use_py_files(py_files)
    pipeline = load_pipeline(target)
    store = checkpoint_store(checkpoint)
    pipeline.validate()  # Errors in it are reported before Spark starts.
    every = checkpoint_every(options.get("checkpoint_every", 1))
    if not every.is_each_epoch:
        require_interval(pipeline.freeze(), store, every)
    require_exact_puts(store)
    if options.get("straggler_after") is None:
        options.pop("straggler_after", None)  # not given: the default, and not "never"
    with ExitStack() as opened:
        listeners: list[Listener] = []
        if log_format == "json":
            listeners.append(opened.enter_context(JsonLog(pipeline=pipeline.name).with_logging()))
        server = None
        if metrics_port is not None:  # a port that is taken is told before Spark starts
            metrics = PrometheusListener(pipeline=pipeline.name)
            server = opened.enter_context(metrics.serve(metrics_port))
            listeners.append(metrics)
        session = spark_session(
            pipeline.name, master, conf=conf, packages=packages, py_files=py_files
        )
        with ended_by_sigterm():
            spark = opened.enter_context(session)
        if log_format == "text":
            listeners.insert(0, opened.enter_context(terminal_view()))
        if server is not None:
            where = f"metrics at {server.url}/metrics, health at {server.url}/healthz"
            listeners[0].on_notice(Notice(pipeline.name, "metrics", where))
        options["listeners"] = listeners
        job: Job | None = None
        asked = False

        def leave() -> None:
            nonlocal asked
            asked = True
            if job is not None:
                job.leave(False)

        with graceful_stop(leave, STOPPING):
            job = pipeline.start(checkpoint=checkpoint, spark=spark, **options)
            if asked:  # while it was started
                job.leave(False)
            if server is not None:
                server.watch(job.status)
            job.wait()
