"""`headrace bench paper`: one figure of a paper, or all of them; `headrace bench report`."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.bench.options import json_file_option, say, tell
from headrace.errors import HeadraceError

_DIRECTORY = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(
    epilog="""\b
Examples:
  headrace bench paper --list
  headrace bench paper seep-13 --json out/papers/seep-13.json
  headrace bench paper --all --dir out/papers --page bench/PAPERS.md"""
)
@click.argument("row", required=False)
@click.option("--list", "listed", is_flag=True, help="List all rows, and run nothing.")
@click.option("--all", "every", is_flag=True, help="Run all rows, each in a process of its own.")
@click.option(
    "--dir", "directory", type=_DIRECTORY, default=Path("out/papers"), show_default=True,
    help="With --all and --page: where the JSON files of rows lie.",
)  # fmt: skip
@click.option("--page", type=_FILE, help="Write this page from the rows of the directory.")
@json_file_option
def paper(
    row: str | None,
    listed: bool,
    every: bool,
    directory: Path,
    page: Path | None,
    json_file: Path | None,
) -> None:
    """Repeat an experiment of one of the papers, and judge whether its shape is the same."""
    from headrace.bench.papers.catalog import ROWS, row_of
    from headrace.bench.papers.everything import run_all
    from headrace.bench.papers.page import read_rows, render_page
    from headrace.bench.papers.row import format_row, run_row

    if sum((row is not None, listed, every)) > 1:
        raise click.UsageError("give one of: the id of a row, --list, --all")
    if listed:
        for name, known in ROWS.items():
            click.echo(f"{name:<14}{known.paper}\n{'':<14}here: {known.ours}")
    elif every:
        failed = run_all(list(ROWS), directory, page, say=say)
        if failed:
            raise HeadraceError(f"these rows failed: {', '.join(failed)}")
    elif row is not None:
        chosen = row_of(row)
        document = run_row(chosen, say=say)
        tell(document, format_row(document), json_file, wrong="results were wrong")
    elif page is None:
        raise click.UsageError("give the id of a row, --list, --all, or --page")
    if page is not None and not every:
        found = read_rows(directory)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(render_page(found), encoding="utf-8")
        click.echo(f"{len(found)} rows are in {page}")


@click.command(
    epilog="""\b
Examples:
  headrace bench report out --output bench/REPORT.md
  headrace bench report out --keep bench/results --output bench/REPORT.md"""
)
@click.argument(
    "directory", type=click.Path(path_type=Path, file_okay=False, exists=True), default=Path("out")
)
@click.option(
    "--output", type=_FILE, default=Path("bench/REPORT.md"), show_default=True,
    help="The page; its plots lie beside it.",
)  # fmt: skip
@click.option(
    "--keep", type=_DIRECTORY,
    help="Copy the JSON files here, in the place of older ones; the page is about all of these.",
)  # fmt: skip
def report(directory: Path, output: Path, keep: Path | None) -> None:
    """Write a page with plots from the JSON files of benchmarks in a directory."""
    from headrace.bench.report.page import write_report

    documents, plots = write_report(directory, output, keep)
    click.echo(f"{output}: {documents} documents, {plots} plots")
