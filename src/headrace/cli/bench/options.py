"""What the commands of `headrace bench` have in common: options, and how results are shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headrace.cli.options import Command
from headrace.errors import HeadraceError

UNLIKE = "the systems have different counts, so their times mean nothing"

work_dir_option = click.option(
    "--dir",
    "work_dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Directory for input and checkpoints.  [default: a temporary directory]",
)
json_file_option = click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
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
    above_nothing = click.FloatRange(min=0, min_open=True)
    return click.option(
        flag, name, type=above_nothing, default=default, show_default=True, help=help
    )


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
