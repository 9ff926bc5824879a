"""`headrace deploy CHECKPOINT module:name`: puts changed code in force while the pipeline runs."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

import click

from headrace.cli import options
from headrace.cli.spark import spark_session, use_py_files
from headrace.cli.targets import load_pipeline
from headrace.engine.leading.signals import STOPPING, graceful_stop
from headrace.errors import IncompatibleState
from headrace.observe.progress import terminal_view


def _meant(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """NAME=drop, several times, as a mapping."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, what = text.rpartition("=")
        if not equals or what != "drop" or not name:
            raise click.BadParameter(f"{text!r} is not NAME=drop", ctx, param)
        found[name] = what
    return found


@click.command(
    epilog="""\b
Examples:
  headrace deploy state/orders shop.orders:pipeline
  headrace deploy state/orders shop.orders:pipeline --confirm-after 20
  headrace deploy state/orders shop.orders:pipeline --check all --mode restore
  headrace deploy state/orders shop.orders:pipeline --rekeyed Orders=drop
  headrace rollback state/orders""",
)
@click.argument("checkpoint", metavar="DIR|URL")
@click.argument("target", metavar="MODULE:NAME")
@click.option(
    "--confirm-after",
    type=click.IntRange(1, 10_000),
    default=3,
    show_default=True,
    metavar="K",
    help="In which of its epochs the new code is confirmed.",
)
@click.option(
    "--probation",
    callback=options.checked_duration,
    default="60s",
    show_default=True,
    metavar="TIME",
    help="The former code takes back where the new one makes no progress for so long.",
)
@click.option(
    "--check",
    type=click.Choice(["sample", "all"]),
    default="sample",
    show_default=True,
    help="How many of the stored keys are read and migrated before it takes over.",
)
@click.option(
    "--mode",
    type=click.Choice(["forward", "restore"]),
    help="restore: hold outputs until confirmed, so that a rollback leaves no trace.  [default: "
    "forward where the former code can read what the new one writes]",
)
@click.option(
    "--rekeyed",
    multiple=True,
    callback=_meant,
    metavar="NAME=drop",
    help="The state of this computation belongs to other keys, and is given up.",
)
@click.option(
    "--calls",
    type=click.Choice(["stay"]),
    help="In mode restore: calls to the outside that were made stay made after a rollback.",
)
@click.option(
    "--moved",
    multiple=True,
    metavar="STREAM",
    help="The source of this stream is the same data at another place.",
)
@options.state
@options.spark
@options.slots
@options.epoch_target("1s")
@options.epoch_records
@options.lease
@options.give_up_after
@options.replicas
@options.local_cache
@options.state_cache
@options.recovery
@options.epoch_timeout
def deploy(
    checkpoint: str,
    target: str,
    master: str | None,
    conf: dict[str, str],
    packages: tuple[str, ...],
    py_files: tuple[str, ...],
    mode: str | None,
    calls: str | None,
    moved: tuple[str, ...],
    **given: Any,
) -> None:
    """Deploy changed code of a running pipeline, without stopping it.

    The new code starts beside the running one and checks itself: its contract, a sample of state,
    the last epochs. Then it takes over between two epochs, and this command stays as the driver.
    The former code is its guard until the deploy is confirmed, and takes back by itself where the
    new code fails; it ends with status 0 when the deploy is confirmed.
    """
    use_py_files(py_files)
    pipeline = load_pipeline(target)
    pipeline.validate()
    session = partial(spark_session, pipeline.name, master, conf=conf, packages=packages)
    with ExitStack() as stack:
        view = stack.enter_context(terminal_view())
        job = pipeline.deploy(
            checkpoint=checkpoint,
            spark=lambda: stack.enter_context(session(py_files=py_files)),
            mode=mode or "",
            calls=calls or "",
            moved=moved,
            listeners=[view],
            **given,
        )
        with graceful_stop(partial(job.leave, False), STOPPING):
            summary = job.wait()
    if summary.reason == "rolled back":
        raise IncompatibleState("the deploy was taken back, as asked")
