"""`headrace pause`, `resume`, `stop`, `rescale`, `savepoint`, `restore`: commands to a pipeline.

Each takes the location of a checkpoint and puts a request into it; the driver that leads there
decides it. They work from any machine that may write the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.cli.options import checked_duration
from headrace.model.values.time import duration, show_instant

if TYPE_CHECKING:
    from headrace.engine.commands import Remote

Command = TypeVar("Command", bound=Callable[..., Any])

_location = click.argument("checkpoint", metavar="DIR|URL")


def asking_options(command: Command) -> Command:
    """The options of every command that is put as a request."""
    for option in (
        click.option(
            "--id",
            "command",
            default="",
            metavar="TEXT",
            help="An id of this command: given twice, it takes effect once.",
        ),
        click.option(
            "--expires",
            callback=checked_duration,
            default="10m",
            show_default=True,
            metavar="TIME",
            help="After this time a driver refuses the request, if none has decided it by then.",
        ),
        click.option(
            "--timeout",
            callback=checked_duration,
            metavar="TIME",
            help="How long to wait.  [default: while a driver shows signs of life]",
        ),
        click.option("--no-wait", is_flag=True, help="Wait for the decision, not for its effect."),
    ):
        command = option(command)
    return command


def ask(remote: Remote, verb: str, arguments: dict[str, Any], asking: dict[str, Any]) -> str:
    """Asks a leader, and says what came of it; while it waits, that it does."""
    timeout = asking["timeout"]
    result = remote.ask(
        verb,
        arguments,
        expects=asking.get("expects"),
        command=asking["command"],
        expires_s=duration(asking["expires"], what="--expires") / 1e6,
        timeout_s=None if timeout is None else duration(timeout, what="--timeout") / 1e6,
        done=not asking["no_wait"],
        on_taken=lambda position: click.echo(
            f"{remote.pipeline}: {verb} taken (request {position}); waiting until it is done",
            err=True,
        ),
    )
    effect = f": {result.message}" if result.message else ""
    return f"{remote.pipeline}: {verb} {result.verdict}{effect} (request {result.position})"


def _ask(checkpoint: str, verb: str, arguments: dict[str, Any], asking: dict[str, Any]) -> None:
    from headrace.engine.commands import Remote

    click.echo(ask(Remote(checkpoint), verb, arguments, asking))


@click.command(
    epilog="""\b
Examples:
  headrace pause state/orders
  headrace pause s3://bucket/orders --timeout 30s"""
)
@_location
@asking_options
def pause(checkpoint: str, **asking: Any) -> None:
    """Pause a running pipeline after its current epoch.

    Its driver keeps leading and keeps Spark. The pause is part of the log: a driver that takes over
    stays paused, and so does a new start, until `headrace resume`.
    """
    _ask(checkpoint, "pause", {}, asking)


@click.command(
    epilog="""\b
Examples:
  headrace resume state/orders"""
)
@_location
@asking_options
def resume(checkpoint: str, **asking: Any) -> None:
    """Let a paused pipeline go on."""
    _ask(checkpoint, "resume", {}, asking)


@click.command(
    epilog="""\b
Examples:
  headrace stop state/orders
  headrace stop s3://bucket/orders --no-wait"""
)
@_location
@asking_options
def stop(checkpoint: str, **asking: Any) -> None:
    """Stop a running pipeline after its current epoch, with its standbys.

    Nothing is lost: `headrace run` goes on from there. A standby, and a driver started with
    --supervised, never go on from a stop.
    """
    _ask(checkpoint, "stop", {}, asking)


@click.command(
    epilog="""\b
Examples:
  headrace rescale state/orders Orders 8
  headrace rescale state/orders Orders 8 --expect-slots 4"""
)
@_location
@click.argument("computation", metavar="COMPUTATION")
@click.argument("slots", type=click.IntRange(1, 10_000), metavar="SLOTS")
@click.option(
    "--expect-slots",
    type=click.IntRange(min=1),
    metavar="N",
    help="Refuse it if the computation has another number of slots by then.",
)
@asking_options
def rescale(
    checkpoint: str, computation: str, slots: int, expect_slots: int | None, **asking: Any
) -> None:
    """Give a computation of a running pipeline another number of slots.

    It changes between two epochs, without a restart. A later rescale of the same computation
    supersedes it.
    """
    expects = {} if expect_slots is None else {"slots": expect_slots}
    asking["expects"] = expects
    _ask(checkpoint, "rescale", {"computation": computation, "slots": slots}, asking)


@click.command(
    epilog="""\b
Examples:
  headrace rollback state/orders"""
)
@_location
@asking_options
def rollback(checkpoint: str, **asking: Any) -> None:
    """Take a deploy back that is on probation.

    The new code lets go, and the former code, which is its guard, goes on: in mode forward from the
    last epoch, in mode restore from the epoch of the hand-over. After a deploy is confirmed, deploy
    the former code instead.
    """
    _ask(checkpoint, "rollback", {}, asking)


@click.command(
    epilog="""\b
Examples:
  headrace savepoint state/orders before-migration
  headrace savepoint state/orders before-migration --drop
  headrace status state/orders"""
)
@_location
@click.argument("name", metavar="NAME")
@click.option("--drop", is_flag=True, help="Drop the savepoint instead: its files may be deleted.")
@asking_options
def savepoint(checkpoint: str, name: str, drop: bool, **asking: Any) -> None:
    """Keep the present state of a running pipeline under a name.

    The state is that of the last committed epoch. It is kept, for `headrace restore`, until it is
    dropped; it does not expire.
    """
    _ask(checkpoint, "drop-savepoint" if drop else "savepoint", {"name": name}, asking)


@click.command(
    epilog="""\b
Examples:
  headrace restore state/orders before-migration --to state/orders-2
  headrace restore state/orders before-migration --yes"""
)
@_location
@click.argument("name", metavar="NAME")
@click.option(
    "--to",
    metavar="DIR|URL",
    help="Restore it as a new checkpoint there. The pipeline may run meanwhile.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def restore(checkpoint: str, name: str, to: str | None, yes: bool) -> None:
    """Put the state back to a savepoint, under a new id.

    Without --to, the pipeline must be stopped, and its state since the savepoint no longer counts.
    Rows that sinks got since stay there; therefore sinks refuse the new id, and a restored pipeline
    needs fresh places to write to. Its sources are read again from the savepoint on, and calls to
    external systems are made again.
    """
    from headrace.engine.replay.restore import restore_savepoint
    from headrace.store.location import checkpoint_store

    if to is None and not yes:
        click.confirm(
            f"Put the state of {checkpoint} back to the savepoint {name!r}, for good?", abort=True
        )
    store, other = checkpoint_store(checkpoint), None if to is None else checkpoint_store(to)
    found = restore_savepoint(store, name, other)
    taken = show_instant(found.savepoint.wall)
    click.echo(
        f"{found.pipeline}: {found.location} has the state of savepoint {name!r} (epoch "
        f"{found.savepoint.epoch}, taken {taken}), under the id {found.checkpoint}. It goes on "
        f"after epoch {found.epoch}; give its sinks fresh places."
    )
