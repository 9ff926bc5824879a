"""`headrace state list`, `get`, `scan`, `diff`: verbs that look; a run is not disturbed."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

import click

from headrace.engine.primitives.columns import key_column
from headrace.engine.primitives.json_form import json_line, typed_key, untyped_hint
from headrace.model.values.time import show_instant
from headrace.plan.progress import counted
from headrace.plan.state.applied import SEGMENTS

at = click.option(
    "--at",
    metavar="EPOCH|NAME",
    help="The state that a past epoch left, or a savepoint.  [default: the last epoch]",
)
kept_in = click.option(
    "--state",
    "kept_in",
    metavar="WHERE",
    help="The state store as the run was given it; needed only if its URL has a password.",
)
LIMIT = 100


@click.command(
    "list",
    short_help="Show epochs, savepoints, computations.",
    epilog="""\b
Examples:
  headrace state list state/orders
  headrace state list s3://bucket/backups/orders""",
)
@click.argument("checkpoint", metavar="DIR|URL")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def list_(checkpoint: str, as_json: bool) -> None:
    """The pipeline, its last epoch, and the computations that have state.

    Of a place with backups: the backups.
    """
    from headrace import Backup, Checkpoint
    from headrace.engine.primitives.backups.verify_backups import is_backup_place
    from headrace.store.location import checkpoint_store

    if is_backup_place(checkpoint_store(checkpoint)):
        _list_backups(Backup(checkpoint), as_json)
        return
    found = Checkpoint(checkpoint)
    if as_json:
        click.echo(json_line(_described(found)))
        return
    kept = found.epochs
    click.echo(f"{found.pipeline}: epoch {found.epoch}")
    if found.kept_in != SEGMENTS:
        click.echo(f"fields and maps are kept in {found.kept_in}")
    if kept:
        click.echo(f"can be run again: epochs {kept[0]} to {kept[-1]}")
    for savepoint in found.savepoints:
        taken = show_instant(savepoint.wall)
        click.echo(f"savepoint {savepoint.name}: epoch {savepoint.epoch}, taken {taken}")
    for name in found.computations:
        slots, segments, size = found.sizes(name)
        watermark = show_instant(found.watermarks.get(name, 0))
        click.echo(
            f"  {name}  (watermark {watermark}; {counted(slots, 'slot')}, "
            f"{counted(segments, 'segment')}, {size:,} bytes)"
        )


def _described(found: Any) -> dict[str, Any]:
    computations = {}
    for name in found.computations:
        slots, segments, size = found.sizes(name)
        computations[name] = {
            "watermark": found.watermarks.get(name, 0),
            "slots": slots,
            "segments": segments,
            "bytes": size,
        }
    return {
        "pipeline": found.pipeline,
        "id": found.id,
        "epoch": found.epoch,
        "state": found.kept_in,
        "epochs_kept": found.epochs,
        "savepoints": {each.name: each.epoch for each in found.savepoints},
        "computations": computations,
    }


def _list_backups(found: Any, as_json: bool) -> None:
    for each in found.backups:
        if as_json:
            told = {"pipeline": each.pipeline, "epoch": each.epoch, "wall": each.wall}
            click.echo(json_line({**told, "bytes": each.bytes, "of": each.location}))
        else:
            count = counted(len(each.files) + len(each.workspaces), "file")
            click.echo(
                f"{each.pipeline}: epoch {each.epoch}, taken {show_instant(each.wall)} of "
                f"{each.location}: {count}, {each.bytes:,} bytes"
            )


class _LookUp(click.Command):
    """A command whose last argument may be a negative number, which is no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        numbers = [each for each in args if re.fullmatch(r"-\d+", each)]
        if numbers and "--" not in args:
            args = [*(each for each in args if each not in numbers), "--", *numbers]
        return super().parse_args(ctx, args)


@click.command(
    cls=_LookUp,
    short_help="Show the state of one key.",
    epilog="""\b
Examples:
  headrace state get state/orders Orders o1
  headrace state get state/orders Trips '["berlin", 7]' --with-epoch
  headrace state get state/orders Orders '"17"'
  headrace state get state/orders Orders o1 --at 17""",
)
@click.argument("checkpoint", metavar="DIR|URL")
@click.argument("computation", metavar="NAME")
@click.argument("key", metavar="KEY")
@click.option("--with-epoch", is_flag=True, help="Show the epoch that left this state, too.")
@at
@kept_in
@click.pass_context
def get(
    ctx: click.Context,
    checkpoint: str,
    computation: str,
    key: str,
    with_epoch: bool,
    at: str | None,
    kept_in: str | None,
) -> None:
    """The state of one key, as a line of JSON. KEY is JSON, or a bare word for a string.

    A number is typed as it is, a text of digits in quotes, and bytes as {"bytes": "their base64"}.
    It is committed state, of a running pipeline too. The exit status is 1 if the key has none.
    """
    from headrace import Checkpoint

    opened = Checkpoint(checkpoint, at=at, state=kept_in)
    typed = typed_key(key)
    found = opened.lookup(computation, typed)
    if with_epoch:
        click.echo(json_line({"epoch": found.epoch, "state": found.state}))
    elif found.state is not None:
        click.echo(json_line(found.state))
    if found.state is None:
        click.echo(f"{computation} has no state for the key {typed!r}{untyped_hint(key)}", err=True)
        ctx.exit(1)


@click.command(
    short_help="Show all keys, or the rows of a query.",
    epilog="""\b
Examples:
  headrace state scan state/orders Orders --limit 20
  headrace state scan state/orders --sql 'SELECT status, count(*) FROM Orders GROUP BY 1'
  headrace state scan state/orders Orders --sql 'SELECT key FROM state WHERE paid_cents > 1000'""",
)
@click.argument("checkpoint", metavar="DIR|URL")
@click.argument("computation", metavar="[NAME]", required=False)
@click.option("--sql", metavar="QUERY", help="A query in DuckDB; its tables are computations.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help=f"How many rows.  [default: {LIMIT}; with --sql, all]",
)
@at
@kept_in
def scan(
    checkpoint: str,
    computation: str | None,
    sql: str | None,
    limit: int | None,
    at: str | None,
    kept_in: str | None,
) -> None:
    """The keys of a computation with their state, a line of JSON each, in no particular order.

    The key is called `key`, or `key_` if a field has that name.

    With --sql, the rows of a query. Each computation is a table with a column for the key and one
    for each field; a name with a dot is quoted: "visits.window". If NAME is given, it is the table
    `state` too. All of it is the state of one epoch.
    """
    from headrace import Checkpoint

    found = Checkpoint(checkpoint, at=at, state=kept_in)
    if sql is not None:
        rows: Any = found.rows(sql, computation)
    elif computation is None:
        have = ", ".join(found.computations) or "none"
        raise click.UsageError(f"say which computation, or --sql; there are: {have}")
    else:
        limit = LIMIT if limit is None else limit
        fields = found.fields(computation)
        rows = (
            {key_column({**fields, **state}): key, **state}
            for key, state in found.scan(computation)
        )
    for row in islice(rows, limit):
        click.echo(json_line(row))
    if limit is not None and next(rows, None) is not None:
        click.echo("… and more; see --limit", err=True)


@click.command(
    short_help="Show what changed between two epochs.",
    epilog="""\b
Examples:
  headrace state diff state/orders 12 17
  headrace state diff state/orders before-migration 17 --computation Orders""",
)
@click.argument("checkpoint", metavar="DIR|URL")
@click.argument("before", metavar="EPOCH")
@click.argument("after", metavar="EPOCH")
@click.option("--computation", metavar="NAME", help="Only this computation.")
@click.option(
    "--limit", type=click.IntRange(min=0), default=LIMIT, show_default=True, help="How many keys."
)
def diff(checkpoint: str, before: str, after: str, computation: str | None, limit: int) -> None:
    """What changed between two epochs: a line of JSON for each key that differs.

    EPOCH is a number, or the name of a savepoint. `before` and `after` hold only what differs:
    fields, and entries of maps. Both epochs must be kept: see `headrace run --retain`.
    """
    from headrace import Checkpoint

    changes: Any = Checkpoint(checkpoint).diff(before, after, computation)
    for each in islice(changes, limit):
        told: dict[str, Any] = {"computation": each.computation, "key": each.key}
        if not each.added:
            told["before"] = each.before
        if not each.removed:
            told["after"] = each.after
        click.echo(json_line(told))
    if next(changes, None) is not None:
        click.echo("… and more; see --limit", err=True)
    changes.close()
