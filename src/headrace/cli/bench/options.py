"""What the commands of `headrace bench` have in common: options, and how results are shown."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headrace.cli.options import Command, FiniteRange
from headrace.errors import HeadraceError

UNLIKE = "the systems have different counts, so their times mean nothing"

work_dir_option = click.option(
    "--dir",
    "work_dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Directory for input and checkpoints.  [default: a temporary directory]",
)


def can_be_made(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Refuses a file that cannot be written, before anything runs; its directory may be missing."""
    if value is not None:
        above = next(parent for parent in value.absolute().parents if parent.exists())
        if not above.is_dir() or not os.access(value if value.exists() else above, os.W_OK):
            raise click.BadParameter(f"{value} cannot be written", ctx, param)
    return value


json_file_option = click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=can_be_made,
    help="Write everything that was measured to this file.",
)


def number(
    flag: str, default: int, help: str, name: str | None = None, *, least: int = 1
) -> Callable[[Command], Command]:
    """An option that takes an integer."""
    names = (flag,) if name is None else (flag, name)
    return click.option(
        *names, type=click.IntRange(min=least), default=default, show_default=True, help=help
    )


def seconds(
    flag: str, help: str, name: str, *, default: float = 1.0
) -> Callable[[Command], Command]:
    """An option that takes a number of seconds."""
    above_nothing = FiniteRange(min=0, min_open=True)
    return click.option(
        flag, name, type=above_nothing, default=default, show_default=True, help=help
    )


def open_load(command: Command) -> Command:
    """Adds the options of an open load that follows a benchmark's throughput."""
    options = [
        click.option(
            "--rate",
            default="",
            metavar="R,S",
            help="Then an open load, for latency: shares of each system's capacity, or records/s.",
        ),
        seconds("--rate-seconds", "How long each rate is kept up.", "rate_seconds", default=15.0),
        number("--rate-burst", 800_000, "Records of a burst that measures capacity.", least=8),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def say(line: str) -> None:
    """Shows progress, apart from the results."""
    click.echo(line, err=True)


def tell(document: dict[str, Any], shown: str, json_file: Path | None, *, wrong: str) -> None:
    """Shows and stores the measurements; after that, wrong results are raised as an error."""
    from headrace.bench.frame.result import write_document

    click.echo(shown)
    if json_file is not None:
        write_document(document, json_file)
        click.echo(f"\nWritten to {json_file}")
    if not document["results_equal"]:
        raise HeadraceError(wrong)
