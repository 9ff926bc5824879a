"""Options that several verbs share."""

from __future__ import annotations

import click

from headrace.model.time import duration


def _duration(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """The text itself, if it is a duration."""
    try:
        duration(value, what="it")
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error
    return value


master = click.option(
    "--master",
    metavar="URL",
    help="Spark master, such as spark://host:7077.  [default: all cores of this machine]",
)
slots = click.option(
    "--slots",
    type=click.IntRange(min=1),
    metavar="N",
    help="Units of parallel work per level.  [default: as many as Spark has cores]",
)
epoch_target = click.option(
    "--epoch-target",
    callback=_duration,
    default="1s",
    show_default=True,
    metavar="TIME",
    help="How long an epoch should take; its size follows.",
)
