"""`headrace replay module:name --checkpoint DIR --epoch N`: runs a past epoch again, here."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from headrace.cli import AS_A_PROCESS
from headrace.cli.targets import load_pipeline
from headrace.engine.primitives.json_form import json_line, typed_key
from headrace.observe.replayed import call_lines, head_line, verdict_lines


@click.command(
    epilog="""\b
Examples:
  headrace replay shop.orders:pipeline --checkpoint state/orders --epoch 17
  headrace replay shop.orders:pipeline --checkpoint state/orders --epoch 17 \\
      --computation Orders --key o1 --pdb""",
)
@click.argument("target", metavar="MODULE:NAME")
@click.option("--checkpoint", required=True, metavar="DIR|URL", help="Where the pipeline has run.")
@click.option(
    "--epoch", required=True, type=click.IntRange(min=1), metavar="N", help="Which epoch."
)
@click.option("--computation", metavar="NAME", help="Show only calls of this computation's hooks.")
@click.option("--key", metavar="KEY", help="Show only this key: JSON, or a bare word for a string.")
@click.option("--pdb", is_flag=True, help="Stop in the debugger at the first call that is shown.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=200,
    show_default=True,
    help="How many calls to show.",
)
@click.pass_context
def replay(
    ctx: click.Context,
    target: str,
    checkpoint: str,
    epoch: int,
    computation: str | None,
    key: str | None,
    pdb: bool,
    as_json: bool,
    limit: int,
) -> None:
    """Run a past epoch again, with the same records, clock, random numbers and external answers.

    Shows every hook call, with the state that it changed, and verifies that the result is what the
    epoch committed; the exit status is 1 if it is not. Nothing in the checkpoint is changed,
    external systems are not called, and no Spark is needed. How many epochs can be run again is a
    setting of the run: `headrace run --retain N`.
    """
    if ctx.obj == AS_A_PROCESS and sys.flags.hash_randomization:
        # The order of sets depends on the hash seed; it must be 0 as in Spark's workers.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "headrace.cli.main", *sys.argv[1:]]
        os.execve(sys.executable, command, environment)
    from headrace import replay as run_again

    found = run_again(
        load_pipeline(target),
        checkpoint=checkpoint,
        epoch=epoch,
        computation=computation,
        key=None if key is None else typed_key(key),
        debug=pdb,
    )
    if pdb and not found.calls:
        click.echo("Note: no call is shown, so the debugger had nowhere to stop", err=True)
    if as_json:
        _tell_json(found, limit)
    else:
        _tell(found, limit)
    if not found.equal:
        ctx.exit(1)


def _tell(found: Any, limit: int) -> None:
    for warning in found.warnings:
        click.echo(f"Note: {warning}", err=True)
    click.echo(head_line(found))
    for call in found.calls[:limit]:
        click.echo("")
        for line in call_lines(call):
            click.echo(line)
    shown = min(limit, len(found.calls))
    if found.calls_total > shown:
        click.echo(
            f"\n{found.calls_total - shown:,} more calls; see --limit, --computation and --key"
        )
    click.echo("")
    for line in verdict_lines(found):
        click.echo(line)


def _tell_json(found: Any, limit: int) -> None:
    for call in found.calls[:limit]:
        click.echo(json_line({"call": call}))
    told = {name: getattr(found, name) for name in found.__struct_fields__ if name != "calls"}
    click.echo(json_line(told))
