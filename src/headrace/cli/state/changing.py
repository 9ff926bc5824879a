"""`headrace state drop`, `compact`, `checkpoint`: verbs that change a checkpoint, or ask it to."""

from __future__ import annotations

from typing import Any

import click

from headrace.cli.control import ask, asking_options
from headrace.engine.primitives.json_form import typed_key, untyped_hint
from headrace.plan.control import COMPACT
from headrace.plan.progress import counted


@click.command(
    short_help="Make the state of the last epoch durable.",
    epilog="""\b
Examples:
  headrace state checkpoint state/orders""",
)
@click.argument("checkpoint", metavar="DIR|URL")
def checkpoint(checkpoint: str) -> None:
    """Make the state of the last epoch durable now, and say which epoch is.

    Without --checkpoint-every every committed epoch is durable, and this says so. With it, the
    leader of a running pipeline is asked for a checkpoint. Of a stopped pipeline, it says up to
    where the state is durable; what is not is made again from the input if a power loss takes it.
    """
    from headrace.engine.commands import Remote

    remote = Remote(checkpoint)
    click.echo(f"{remote.pipeline}: epoch {remote.checkpoint()} is durable")


@click.command(
    short_help="Merge all segments of each slot now.",
    epilog="""\b
Examples:
  headrace state compact state/orders
  headrace state compact s3://bucket/orders Orders""",
)
@click.argument("checkpoint", metavar="DIR|URL")
@click.argument("computation", metavar="[NAME]", required=False)
@asking_options
def compact(checkpoint: str, computation: str | None, **asking: Any) -> None:
    """Merge all segments of each slot, of one computation or of all.

    The pipeline compacts by itself; this does it now. Where it runs, its leader is asked, and
    epochs go on meanwhile; the options are for that request. A paused pipeline has no epochs, so it
    refuses. Where it is stopped, the merge is done here; it must stay stopped for that time.
    """
    from headrace import Checkpoint
    from headrace.engine.commands import Remote

    remote = Remote(checkpoint)
    if remote.is_running():
        arguments = {} if computation is None else {"computation": computation}
        click.echo(ask(remote, COMPACT, arguments, asking))
        return
    found = Checkpoint(checkpoint).compact(computation)
    click.echo(
        f"{found.pipeline}: {counted(found.slots, 'slot')} merged: "
        f"{counted(found.segments[0], 'segment')} of {found.bytes[0]:,} bytes became "
        f"{found.segments[1]:,} of {found.bytes[1]:,} bytes. The pipeline goes on after epoch "
        f"{found.epoch}, and its next run deletes the old files."
    )


@click.command(
    short_help="Drop state of a stopped pipeline, for good.",
    epilog="""\b
Examples:
  headrace state drop state/orders Orders --key o1
  headrace state drop state/orders Orders --all""",
)
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

    typed = {typed_key(key): key for key in keys}
    named = None if everything else list(typed)
    what = "all its keys" if named is None else counted(len(named), "key")
    if not yes:
        click.confirm(f"Drop the state of {computation!r}, {what}, for good?", abort=True)
    found = drop_state(checkpoint_store(checkpoint), computation, named)
    for key in found.missing:
        hint = untyped_hint(typed[key])
        click.echo(f"{computation} has no state for the key {key!r}{hint}", err=True)
    if named is not None and len(found.missing) == len(named):
        raise SystemExit(1)
    shown = (
        "all keys"
        if named is None
        else ", ".join(repr(key) for key in named if key not in found.missing)
    )
    also = f", and those in {found.kept_in}" if found.kept_in else ""
    click.echo(
        f"Dropped the state of {computation!r} of {shown} (about {counted(found.cells, 'cell')}"
        f"{also}). The pipeline goes on after epoch {found.epoch}."
    )
    if found.kept_in:
        click.echo(f"Nothing reads them any more, but {found.kept_in} is not made smaller.")
