"""`headrace state backup`, `restore`, `export`, `verify`: copies of state, and its wholeness."""

from __future__ import annotations

import click

from headrace.cli import options
from headrace.cli.state.looking import at, kept_in
from headrace.engine.primitives.json_form import json_line
from headrace.model.values.time import show_instant
from headrace.plan.progress import counted
from headrace.plan.state.applied import SEGMENTS


@click.command(
    short_help="Copy the state elsewhere, also while running.",
    epilog="""\b
Examples:
  headrace state backup state/orders /backups/orders
  headrace state backup s3://bucket/orders s3://other-bucket/backups/orders
  headrace state backup state/orders /backups/orders --at before-migration""",
)
@click.argument("checkpoint", metavar="DIR|URL")
@click.argument("to", metavar="TO")
@at
@kept_in
def backup(checkpoint: str, to: str, at: str | None, kept_in: str | None) -> None:
    """Copy the state of the last epoch into another directory or store, while the pipeline runs.

    TO is empty, or holds backups of the same checkpoint: files that they share are not copied
    again. Every file is checked by its digest on the way. A backup that was interrupted goes on
    when the command is given again; until it is complete it does not count. A state store is
    copied too: a backup needs nothing else.
    """
    from headrace import Checkpoint

    found = Checkpoint(checkpoint, at=at, state=kept_in).backup(to)
    click.echo(
        f"{found.pipeline}: {found.location} has epoch {found.epoch}: "
        f"{counted(found.files, 'file')}, {found.bytes:,} bytes; {found.copied:,} of them "
        f"({found.copied_bytes:,} bytes) were copied now."
    )


@click.command(
    short_help="Make a new checkpoint from a backup.",
    epilog="""\b
Examples:
  headrace state restore /backups/orders state/orders-2
  headrace state restore s3://bucket/backups/orders s3://bucket/orders-2 --epoch 1200
  headrace state restore /backups/orders state/orders-2 --state log""",
)
@click.argument("backup", metavar="BACKUP")
@click.argument("to", metavar="TO")
@click.option("--epoch", type=click.IntRange(min=0), help="Which one.  [default: the newest]")
@options.state
def restore(backup: str, to: str, epoch: int | None, state: str) -> None:
    """Make a checkpoint from a backup, in an empty place, under a new id.

    Every file is checked by its digest. Sources are read again from the backup's epoch on, and
    calls to external systems are made again. Sinks refuse the new id, because rows of later epochs
    may be out: give a restored pipeline fresh places to write to. With --state the new checkpoint
    keeps its state there, whatever the old one did. To put a checkpoint back to one of its own
    savepoints, use `headrace restore`.
    """
    from headrace import Backup

    found = Backup(backup).restore(to, epoch, state=state)
    click.echo(
        f"{found.pipeline}: {found.location} has the state of epoch {found.epoch}, of a backup "
        f"taken {show_instant(found.wall)}, under the id {found.checkpoint}. It goes on after that "
        "epoch; give its sinks fresh places."
    )
    if found.state != SEGMENTS or found.state_before != SEGMENTS:
        click.echo(f"Its state is kept in {found.state!r}: start it with --state {found.state}")


@click.command(
    short_help="Write the state of a computation as Parquet.",
    epilog="""\b
Examples:
  headrace state export state/orders Orders out/orders
  headrace state export s3://bucket/orders Orders s3://bucket/exports/orders --at 17""",
)
@click.argument("checkpoint", metavar="DIR|URL")
@click.argument("computation", metavar="NAME")
@click.argument("to", metavar="TO")
@at
@kept_in
def export(checkpoint: str, computation: str, to: str, at: str | None, kept_in: str | None) -> None:
    """Write the state of a computation as Parquet: a row per key, a column per field and map.

    TO is an empty directory or URL. A field whose values are of one kind has a typed column; one
    with several kinds (text beside numbers) is JSON as text. Timers are not exported.
    """
    from headrace import Checkpoint

    found = Checkpoint(checkpoint, at=at, state=kept_in).export(computation, to)
    click.echo(
        f"{found.pipeline}: {counted(found.rows, 'key')} of {computation!r} at epoch {found.epoch} "
        f"are in {found.location}, in {counted(len(found.files), 'file')}."
    )
    for name, kind in found.columns.items():
        click.echo(f"  {name}  {kind}")


@click.command(
    short_help="Check every file of a checkpoint or backup.",
    epilog="""\b
Examples:
  headrace state verify state/orders
  headrace state verify s3://bucket/backups/orders --json""",
)
@click.argument("checkpoint", metavar="DIR|URL")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@kept_in
@click.pass_context
def verify(ctx: click.Context, checkpoint: str, as_json: bool, kept_in: str | None) -> None:
    """Check every file of a checkpoint, or of a place with backups. Nothing is changed.

    Checksums of log, segments, rings, rows for sinks, logged calls, savepoints and of the cells of
    a state store; whether every
    file is there that a commit names; and what nobody names. The exit status is 1 if anything is
    damaged or missing. Orphans are harmless: a run deletes them.
    """
    from headrace.engine.primitives.backups.verify_backups import is_backup_place, verify_backups
    from headrace.engine.primitives.stores.store_access import StoreAccess
    from headrace.engine.primitives.verify import verify_checkpoint
    from headrace.store.location import checkpoint_store

    store = checkpoint_store(checkpoint)
    if is_backup_place(store):
        found = verify_backups(store)
    else:
        found = verify_checkpoint(store, StoreAccess(store, kept_in))
    if as_json:
        click.echo(json_line(found))
    else:
        for problem in found.problems:
            click.echo(f"damaged: {problem.file}: {problem.what}")
        for note in found.notes:
            click.echo(f"note: {note}")
        if found.orphans:
            click.echo(
                f"note: {counted(len(found.orphans), 'file')} ({found.orphan_bytes:,} bytes) that "
                "nothing names, of attempts that were not committed, or not collected yet"
            )
        cells = f", {counted(found.cells, 'cell')} in the state store" if found.cells else ""
        verdict = "whole" if found.is_whole else counted(len(found.problems), "problem")
        click.echo(
            f"{found.pipeline or found.location}: epoch {found.epoch}, "
            f"{counted(found.files, 'file')}, {found.bytes:,} bytes{cells}: {verdict}"
        )
    if not found.is_whole:
        ctx.exit(1)
