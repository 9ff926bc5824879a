"""`headrace state`: what a checkpoint holds. A pipeline that runs on it is not disturbed."""

from __future__ import annotations

from itertools import islice
from typing import Any

import click

from headrace.cli.replay import as_json_line, parsed_key
from headrace.model.time import show_instant


@click.group(
    epilog="""\b
Examples:
  headrace state list state/orders
  headrace state get state/orders Orders o1
  headrace state get state/orders Trips '["berlin", 7]'
  headrace state scan state/orders Orders --limit 20"""
)
def state() -> None:
    """Look into a checkpoint: its computations, and the state of their keys."""


@state.command("list")
@click.argument("checkpoint", metavar="DIR")
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
@click.argument("checkpoint", metavar="DIR")
@click.argument("computation", metavar="NAME")
@click.argument("key", metavar="KEY")
@click.pass_context
def get(ctx: click.Context, checkpoint: str, computation: str, key: str) -> None:
    """The state of one key, as a line of JSON. KEY is JSON, or a bare word for a string.

    The exit status is 1 where the key has no state.
    """
    from headrace import Checkpoint

    found = Checkpoint(checkpoint).get(computation, parsed_key(key))
    if found is None:
        click.echo(f"{computation} has no state for the key {parsed_key(key)!r}", err=True)
        ctx.exit(1)
    click.echo(as_json_line(found))


@state.command()
@click.argument("checkpoint", metavar="DIR")
@click.argument("computation", metavar="NAME")
@click.option(
    "--limit", type=click.IntRange(min=0), default=100, show_default=True, help="How many keys."
)
def scan(checkpoint: str, computation: str, limit: int) -> None:
    """The keys of a computation with their state, a line of JSON each, in no order of note."""
    from headrace import Checkpoint

    keys: Any = Checkpoint(checkpoint).scan(computation)
    for key, found in islice(keys, limit):
        click.echo(as_json_line({"key": key, **found}))
    if next(keys, None) is not None:
        click.echo("… and more; see --limit", err=True)
