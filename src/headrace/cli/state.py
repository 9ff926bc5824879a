"""`headrace state`: shows the state in a checkpoint. A running pipeline is not disturbed.

Only `drop` changes a checkpoint, and it requires that the pipeline is stopped.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from headrace.cli.replay import as_json_line, parsed_key
from headrace.model.values.time import show_instant
from headrace.plan.progress import counted


@click.group(
    epilog="""\b
Examples:
  headrace state list state/orders
  headrace state get state/orders Orders o1
  headrace state get state/orders Trips '["berlin", 7]'
  headrace state scan state/orders Orders --limit 20
  headrace state drop state/orders Orders --key o1 --key o2
  headrace state drop state/orders Orders --all"""
)
def state() -> None:
    """Look into a checkpoint, or drop state from it: computations and the state of their keys."""


@state.command("list")
@click.argument("checkpoint", metavar="DIR|URL")
def list_(checkpoint: str) -> None:
    """The pipeline, its last epoch, and the computations that have state."""
    from headrace import Checkpoint

    found = Checkpoint(checkpoint)
    kept = found.epochs
    click.echo(f"{found.pipeline}: epoch {found.epoch}")
    if kept:
        click.echo(f"can be run again: epochs {kept[0]} to {kept[-1]}")
    for name in found.computations:
        watermark = found.watermarks.get(name, 0)
        click.echo(f"  {name}  (watermark {show_instant(watermark)})")


@state.command()
@click.argument("checkpoint", metavar="DIR|URL")
@click.argument("computation", metavar="NAME")
@click.argument("key", metavar="KEY")
@click.pass_context
def get(ctx: click.Context, checkpoint: str, computation: str, key: str) -> None:
    """The state of one key, as a line of JSON. KEY is JSON, or a bare word for a string.

    The exit status is 1 if the key has no state.
    """
    from headrace import Checkpoint

    found = Checkpoint(checkpoint).get(computation, parsed_key(key))
    if found is None:
        click.echo(f"{computation} has no state for the key {parsed_key(key)!r}", err=True)
        ctx.exit(1)
    click.echo(as_json_line(found))


@state.command()
@click.argument("checkpoint", metavar="DIR|URL")
@click.argument("computation", metavar="NAME")
@click.option(
    "--limit", type=click.IntRange(min=0), default=100, show_default=True, help="How many keys."
)
def scan(checkpoint: str, computation: str, limit: int) -> None:
    """The keys of a computation with their state, a line of JSON each, in no particular order."""
    from headrace import Checkpoint

    keys: Any = Checkpoint(checkpoint).scan(computation)
    for key, found in islice(keys, limit):
        click.echo(as_json_line({"key": key, **found}))
    if next(keys, None) is not None:
        click.echo("… and more; see --limit", err=True)


@state.command()
@click.argument("checkpoint", metavar="DIR|URL")
@click.argument("computation", metavar="NAME")
@click.option("--key", "keys", multiple=True, help="A key, as for get; may be given several times.")
@click.option("--all", "everything", is_flag=True, help="All keys, without reading any segment.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def drop(
    checkpoint: str, computation: str, keys: tuple[str, ...], everything: bool, yes: bool
) -> None:
    """Drop the state of some keys, or of a whole computation, of a stopped pipeline.

    Use it if a checkpoint cannot continue: its code fails because of stored state, or a segment is
    damaged and there is no copy. Only fields, maps, timers and waiting records of the keys are
    lost. Open windows and joins are state of the computation that has the step's name.
    """
    if bool(keys) == everything:
        raise click.UsageError("say which keys, --key KEY, or --all")
    from headrace.engine.replay.drop import drop_state
    from headrace.store.location import checkpoint_store

    named = None if everything else [parsed_key(key) for key in keys]
    what = "all its keys" if named is None else counted(len(named), "key")
    if not yes:
        click.confirm(f"Drop the state of {computation!r}, {what}, for good?", abort=True)
    found = drop_state(checkpoint_store(checkpoint), computation, named)
    for key in found.missing:
        click.echo(f"{computation} has no state for the key {key!r}", err=True)
    if named is not None and len(found.missing) == len(named):
        raise SystemExit(1)
    shown = (
        "all keys"
        if named is None
        else ", ".join(repr(key) for key in named if key not in found.missing)
    )
    click.echo(
        f"Dropped the state of {computation!r} of {shown} (about {counted(found.cells, 'cell')}). "
        f"The pipeline goes on after epoch {found.epoch}."
    )
