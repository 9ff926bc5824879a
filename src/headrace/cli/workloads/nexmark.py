"""`headrace nexmark QUERY --output DIR`: asks a query of Nexmark."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from headrace import Pipeline, sinks, sources
from headrace.cli import options
from headrace.cli.bench.options import can_be_made, json_file_option
from headrace.cli.spark import spark_session
from headrace.engine.leading.signals import STOPPING, graceful_stop
from headrace.errors import HeadraceError, SourceError
from headrace.model.sink import Sink
from headrace.observe.progress import terminal_view
from headrace.plan.listener import Listener
from headrace.plan.progress import EpochProgress, RunSummary
from headrace.sources.files.local_set import LocalFileSet
from headrace.workloads.nexmark.events.generated import GeneratedEvents
from headrace.workloads.nexmark.events.generator import Generator, write_events
from headrace.workloads.nexmark.events.reader import event_files, read_foreign
from headrace.workloads.nexmark.registry import QUERIES, NexmarkQuery, pipeline, query
from headrace.workloads.nexmark.streams import Auction, read_events

EVENTS = 100_000
DEAD = "dead"
JSONL, PARQUET = "jsonl", "parquet"


@click.command(
    epilog="""\b
Examples:
  headrace nexmark q5 --output out/q5
  headrace nexmark q3 --events 1000000 --output out/q3 --json out/q3.json
  headrace nexmark q8 --input events.jsonl --output out/q8 --format parquet
  headrace nexmark q20 --output out/q20 --checkpoint state/q20 --slots 4
  headrace nexmark q13 --output out/q13 --side-input values.csv

\b
Queries:
"""
    + "\n".join(f"  {name}: {one.about}" for name, one in QUERIES.items())
)
@click.argument("name", metavar="QUERY")
@click.option(
    "--events",
    type=click.IntRange(min=0),
    metavar="N",
    help=f"How many events to generate.  [default: {EVENTS:,}]",
)
@click.option("--seed", default=1, show_default=True, help="Seed of generated events.")
@click.option(
    "--rate",
    default=10_000.0,
    show_default=True,
    help="Generated events per second of event time; they are made as fast as they are read.",
)
@click.option(
    "--save-events",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=can_be_made,
    metavar="FILE",
    help="Also write the generated events to this file, as --input reads them.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="FILE",
    help="Read events from JSON lines instead: a file, a directory or a pattern. May be given "
    "several times.",
)
@click.option(
    "--lateness",
    callback=options.checked_duration,
    default="4s",
    show_default=True,
    metavar="TIME",
    help="How far events of --input may be out of order.",
)
@click.option(
    "--dead",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write records of --input that are no events to this directory, and go on.  "
    "[default: they stop the run]",
)
@click.option(
    "--side-input",
    metavar="FILE",
    help="The table of q13, with the columns key and value: .csv, .jsonl or .parquet.  "
    "[default: generated]",
)
@click.option(
    "--output",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The directory for the rows.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice([JSONL, PARQUET]),
    help="The format of the rows.  [default: jsonl; parquet for q10, whose files are partitioned]",
)
@click.option(
    "--checkpoint",
    metavar="DIR|URL",
    help="Keep state and progress here, and continue from here.  [default: a temporary directory]",
)
@options.state
@options.master
@options.slots
@options.epoch_target("1s")
@options.epoch_records
@json_file_option
def nexmark(
    name: str,
    events: int | None,
    seed: int,
    rate: float,
    save_events: Path | None,
    inputs: tuple[str, ...],
    lateness: str,
    dead: Path | None,
    side_input: str | None,
    output: Path,
    kind: str | None,
    checkpoint: str | None,
    master: str | None,
    json_file: Path | None,
    **run_options: Any,
) -> None:
    """Ask a query of Nexmark, an online auction.

    Events are people, auctions and bids, in proportion 1 : 3 : 46. Times in rows are microseconds
    since 1970 UTC. Rows of q4, q6 and q15 to q19 replace earlier ones of the same key.
    """
    asked = query(name)
    if inputs and events is not None:
        raise HeadraceError("nexmark: give --events or --input, not both")
    if inputs and save_events is not None:
        raise HeadraceError("nexmark: --save-events writes generated events, not those of --input")
    if dead is not None and not inputs:
        raise HeadraceError("nexmark: --dead is for records of --input; generated ones are events")
    side = None if side_input is None else _side_input(side_input)
    count = EVENTS if events is None else events
    generator = Generator(seed, rate)
    if save_events is not None:
        write_events(save_events, generator, count)

    def auction(p: Pipeline) -> Auction:
        if inputs:
            aside = None if dead is None else DEAD
            made = Auction.of_events(p, read_foreign(p, _files(inputs, lateness), dead=aside))
        else:
            made = Auction.of_events(p, read_events(p, GeneratedEvents(generator, count)))
        made.side_input = side
        return made

    made = pipeline(name, auction, _sink(asked, output, kind))
    if dead is not None:
        made.stream(DEAD).write(sinks.jsonl(dead))
    made.validate()  # Errors in it are reported before Spark starts.
    with (
        _kept(checkpoint) as place,
        spark_session(made.name, master) as spark,
        terminal_view() as view,
    ):
        rows = RowCount()
        began = time.monotonic()
        job = made.start(
            checkpoint=place, spark=spark, until="end", listeners=[view, rows], **run_options
        )
        with graceful_stop(partial(job.stop, False), STOPPING), _advised(dead):
            summary = job.wait()
        seconds = time.monotonic() - began
    # Dead letters went to a sink, too.
    document = measured(asked, summary, rows.count - summary.dead, seconds)
    click.echo(
        f"{document['rows']:,} rows of {name} in {output}; "
        f"{document['rate']:,.0f} events/s over {seconds:,.1f} s"
    )
    if json_file is not None:
        from headrace.bench.frame.result import write_document

        write_document(document, json_file)
        click.echo(f"Written to {json_file}")


class RowCount(Listener):
    """Counts the rows that went to sinks."""

    count = 0

    def on_epoch(self, progress: EpochProgress) -> None:
        """Adds an epoch's rows."""
        self.count += progress.produced


def measured(asked: NexmarkQuery, summary: RunSummary, rows: int, seconds: float) -> dict[str, Any]:
    """What `--json` writes: counts of this run, and its speed from start to end."""
    return {
        "query": asked.name,
        "records": summary.records,
        "seconds": round(seconds, 3),
        "rate": round(summary.records / seconds, 1),
        "rows": rows,
        "epochs": summary.epochs,
        "late": summary.late,
        "dead": summary.dead,
        "reason": summary.reason,
    }


@contextmanager
def _kept(checkpoint: str | None) -> Iterator[str]:
    """Where the checkpoint lies; a temporary directory disappears."""
    if checkpoint is not None:
        yield checkpoint
        return
    with tempfile.TemporaryDirectory(prefix="headrace-nexmark-") as directory:
        yield directory


def _files(inputs: Sequence[str], lateness: str) -> sources.Source:
    for given in inputs:
        if "://" not in given and not _has_files(given):
            raise HeadraceError(f"nexmark: there is no file {given}")
    return event_files(list(inputs), lateness=lateness)


def _has_files(given: str) -> bool:
    """Looked at before the run, whose start would take possession of the output."""
    try:
        return any(LocalFileSet((given,), watch=False).walk(()))
    except SourceError:
        return False


def _side_input(file: str) -> Any:
    if not Path(file).is_file():
        raise HeadraceError(f"nexmark: there is no file {file} for --side-input")
    suffix = Path(file).suffix
    if suffix == ".csv":
        return _csv_table(file)
    if suffix in (".jsonl", ".json"):
        return sources.jsonl(file)
    if suffix == ".parquet":
        return sources.parquet(file)
    raise HeadraceError(f"nexmark: --side-input {file}: the file is .csv, .jsonl or .parquet")


def _csv_table(file: str) -> Any:
    import pyarrow
    import pyarrow.csv

    try:
        table = pyarrow.csv.read_csv(file)
    except pyarrow.ArrowException as error:
        raise HeadraceError(f"nexmark: --side-input {file} cannot be read: {error}") from error
    missing = [name for name in ("key", "value") if name not in table.column_names]
    if missing:
        raise HeadraceError(
            f"nexmark: --side-input {file} has no column {' and no column '.join(missing)}: its "
            f"columns are {', '.join(table.column_names)}"
        )
    return table


@contextmanager
def _advised(dead: Path | None) -> Iterator[None]:
    """Errors of records that are no events name the option of this command."""
    try:
        yield
    except HeadraceError as error:
        text = str(error)
        if dead is not None or not any(name in text for name in ("TypedEvents", "p.read(")):
            raise
        advice = "give --dead DIR to write such records aside and go on"
        raise HeadraceError(f"{text}\nWith headrace nexmark: {advice}") from error


def _sink(asked: NexmarkQuery, output: Path, kind: str | None) -> Sink:
    if asked.partition_by:
        if kind == JSONL:
            raise HeadraceError(
                f"nexmark: the files of {asked.name} are partitioned by "
                f"{', '.join(asked.partition_by)}, which takes --format parquet"
            )
        return sinks.parquet(output, partition_by=asked.partition_by)
    return sinks.parquet(output) if kind == PARQUET else sinks.jsonl(output)
