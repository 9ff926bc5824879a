"""`headrace ps` and `headrace status`: which pipelines run, and in which state they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.engine.primitives.json_form import json_line
from headrace.errors import HeadraceError
from headrace.model.values.time import show_instant
from headrace.plan.progress import counted

if TYPE_CHECKING:
    from headrace.engine.overview import ComputationOverview, Overview

OUTCOMES_SHOWN = 10
DECISIONS_SHOWN = 5


@click.command(
    epilog="""\b
Examples:
  headrace ps state/orders state/clicks
  headrace ps s3://bucket/orders --json"""
)
@click.argument("checkpoints", nargs=-1, required=True, metavar="DIR|URL...")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.pass_context
def ps(ctx: click.Context, checkpoints: tuple[str, ...], as_json: bool) -> None:
    """List pipelines by their checkpoints: which run, and how far they are.

    It looks at each driver's sign of life for some seconds. The exit status is 1 if a checkpoint
    cannot be read.
    """
    from headrace.engine.commands import Remote
    from headrace.engine.overview import overviews

    remotes = []
    for location in checkpoints:
        try:
            remotes.append(Remote(location))
        except HeadraceError as error:
            click.echo(f"{location}: {error}", err=True)
    found = overviews(remotes)
    for each in found:
        if as_json:
            click.echo(json_line(each))
    if found and not as_json:
        rows = [("PIPELINE", "STATE", "EPOCH", "RECORDS", "SINCE", "CHECKPOINT")]
        rows += [
            (o.pipeline, o.state, f"{o.epoch:,}", f"{o.records:,}", _instant(o.wall), o.location)
            for o in found
        ]
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        for row in rows:
            line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
            click.echo(line.rstrip())
    if len(remotes) < len(checkpoints):
        ctx.exit(1)


@click.command(
    epilog="""\b
Examples:
  headrace status state/orders
  headrace status s3://bucket/orders --json"""
)
@click.argument("checkpoint", metavar="DIR|URL")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def status(checkpoint: str, as_json: bool) -> None:
    """Show the state of one pipeline, running or not: epoch, slots, requests, savepoints."""
    from headrace.engine.commands import Remote
    from headrace.engine.overview import overviews

    [found] = overviews([Remote(checkpoint)])
    if as_json:
        click.echo(json_line(found))
    else:
        for line in lines_of(found):
            click.echo(line)


def lines_of(found: Overview) -> list[str]:
    """The state of a pipeline as text."""
    why = f" ({found.reason})" if found.state == "ended" and found.reason else ""
    lines = [
        f"{found.pipeline}: {found.state}{why}",
        f"  checkpoint  {found.location} (id {found.checkpoint})",
        f"  epoch       {found.epoch:,}, generation {found.generation}, {_instant(found.wall)}",
        f"  records     {found.records:,}; {found.late:,} late, "
        f"{counted(found.dead, 'dead letter')}; {found.state_bytes:,} bytes of state",
    ]
    if found.checkpoints or found.durable < found.epoch:
        late = f"; {found.checkpoints_late:,} late: the store was slow" * bool(
            found.checkpoints_late
        )
        lines.append(
            f"  durable     epoch {found.durable:,}; {counted(found.checkpoints, 'checkpoint')}, "
            f"the last over {counted(found.checkpoint_epochs, 'epoch')}{late}"
        )
    if found.code:
        lines.append(f"  code        {found.code}")
    if found.deploy:
        lines.append(f"  deploy      {found.deploy}")
    if found.paused:
        lines.append("  paused      until `headrace resume`")
    if found.stop:
        done = "complete" if found.stop == "stopped" else "taken; the next driver completes it"
        lines.append(f"  stop        {done}")
    for name, each in found.computations.items():
        wanted = f"; wanted: {each.wanted}" if each.wanted else ""
        lines.append(
            f"  {name}: {counted(each.slots, 'slot')}, watermark "
            f"{show_instant(each.watermark)}{_in_memory(each)}{wanted}"
        )
    lines += _overload_lines(found)
    for saved in found.savepoints:
        lines.append(f"  savepoint {saved.name}: epoch {saved.epoch}, {_instant(saved.wall)}")
    for outcome in found.outcomes[-OUTCOMES_SHOWN:]:
        about = f" {outcome.about}" if outcome.about else ""
        said = outcome.done or outcome.message
        lines.append(
            f"  {_instant(outcome.wall)}  {outcome.verb or 'a request'}{about}: {outcome.verdict}"
            + (f", {said}" if said else "")
        )
    lines += [
        f"  {_instant(decision.wall)}  epoch {decision.epoch}, {decision.text}"
        for decision in found.decisions[-DECISIONS_SHOWN:]
    ]
    if found.waiting:
        lines.append(f"  waiting     {', '.join(found.waiting)}: no driver has decided these")
    return lines


def _in_memory(each: ComputationOverview) -> str:
    """How many keys were found in memory, where that is known."""
    found = "" if each.hit_rate is None else f", {each.hit_rate:.1%} of keys in memory"
    if each.prefetched_rate is not None:
        found += f", {each.prefetched_rate:.1%} of {each.prefetched:,} prefetched keys used"
    return found


def _overload_lines(found: Overview) -> list[str]:
    """Slots with a limit, and what became of the records beyond it."""
    lines = [
        f"  limit       slot {label}: {counted(records, 'record')} per epoch"
        for label, records in sorted(found.limits.items())
    ]
    if found.carried:
        lines.append(f"  carried     {counted(found.carried, 'record')}, into the next epoch")
    for stream, dropped in sorted(found.shed.items()):
        lines.append(f"  shed        {counted(dropped, 'record')} of {stream!r}")
    return lines


def _instant(wall: int) -> str:
    return show_instant(wall) if wall else "-"
