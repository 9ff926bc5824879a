"""`headrace demo [NAME]`: creates its own input, runs a pipeline over it and checks the result."""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from headrace import Pipeline
from headrace.cli import options
from headrace.cli.spark import spark_session
from headrace.demo import edits
from headrace.demo.model import STEADY
from headrace.demo.outcome import Tail, read_outcome
from headrace.demo.queries import make_log, write_log
from headrace.demo.show import Announcer, closing_lines, opening_lines
from headrace.demo.zeitgeist import log_source, zeitgeist
from headrace.engine.leading.signals import STOPPING, graceful_stop
from headrace.errors import HeadraceError
from headrace.observe.progress import ProgressView, terminal_view
from headrace.plan.listener import Listener
from headrace.plan.progress import EpochProgress, Notice, RunSummary
from headrace.workloads.text.runs import WORKLOADS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ZEITGEIST = "zeitgeist"
DEMOS = {
    ZEITGEIST: "spikes and dips in a stream of search queries",
    **{name: workload.about for name, workload in WORKLOADS.items()},
}

MARKER = "headrace-demo.json"


class DemoMarker(msgspec.Struct, frozen=True):
    """Marks a directory as that of a demo, so that it may be emptied or resumed."""

    demo: str
    seed: int


@click.command(
    epilog="""\b
Examples:
  headrace demo
  headrace demo word-count --input book.txt
  headrace demo top-editions --input edits.json.gz --dir /tmp/editions
  headrace demo zeitgeist --input edits.json.gz

\b
Demos:
"""
    + "\n".join(f"  {name}: {about}" for name, about in DEMOS.items())
)
@click.argument("name", default=ZEITGEIST)
@click.option("--seed", default=1, show_default=True, help="Seed of the events.")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where input, output and checkpoint go.  [default: a new temporary directory]",
)
@click.option(
    "--input",
    "given",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="HEADRACE_DEMO_INPUT",
    show_envvar=True,
    help="A text for word-count, or edits as JSON lines for top-editions and zeitgeist.  "
    "[default: generated]",
)
@click.option("--resume", is_flag=True, help="Continue a run in --dir that was stopped or killed.")
@options.master
@options.slots
@options.epoch_target("2s")
def demo(
    name: str,
    seed: int,
    directory: Path | None,
    given: Path | None,
    resume: bool,
    master: str | None,
    slots: int | None,
    epoch_target: str,
) -> None:
    """Run a demo. Its result is compared with that of plain Python."""
    if name not in DEMOS:
        known = "\n".join(f"  {known}: {about}" for known, about in DEMOS.items())
        raise HeadraceError(f"there is no demo {name!r}. Demos:\n{known}")
    if resume and directory is None:
        raise HeadraceError("--resume continues in a directory: name it with --dir")
    place = prepare(directory, DemoMarker(name, seed), resume=resume)
    settings: dict[str, Any] = {"slots": slots, "epoch_target": epoch_target}
    if name == ZEITGEIST and (given is not None or (place / "input" / edits.FILE).exists()):
        ended = _run_edits(place, given, master, settings)
    elif name == ZEITGEIST:
        ended = _run_zeitgeist(place, seed, master, settings)
    else:
        ended = _run_text(name, place, given, seed, master, settings)
    if not ended:
        click.echo(f"Go on with: headrace demo {name} --seed {seed} --resume --dir {place}")


def _run_zeitgeist(place: Path, seed: int, master: str | None, settings: dict[str, Any]) -> bool:
    log = make_log(seed)
    files = [*(place / "input").glob("*.jsonl")] or write_log(log, place / "input")
    pipeline = zeitgeist(log_source(place / "input"), place / "output")
    for line in opening_lines(log, len(files)):
        click.echo(line)
    with spark_session(ZEITGEIST, master) as spark, terminal_view() as view:
        findings = Findings(place / "output", view)
        ended = _run(pipeline, place, spark, [findings], settings)
    if ended:
        for line in closing_lines(log, read_outcome(place / "output"), place):
            click.echo(line)
    return ended


def _run_edits(
    place: Path, given: Path | None, master: str | None, settings: dict[str, Any]
) -> bool:
    """The same over real edits."""
    if given is not None and not (place / "input" / edits.FILE).exists():
        edits.write_edits(given, place / "input")
    pipeline = zeitgeist(
        log_source(place / "input", edits.LATENESS), place / "output", rhythm=STEADY
    )
    for line in edits.opening_lines(sum(1 for _ in edits.read_edits(place / "input"))):
        click.echo(line)
    with spark_session(ZEITGEIST, master) as spark, terminal_view() as view:
        ended = _run(pipeline, place, spark, [view], settings)
    if ended:
        found = read_outcome(place / "output")
        for line in edits.closing_lines(edits.read_edits(place / "input"), found, place):
            click.echo(line)
    return ended


def _run_text(
    name: str,
    place: Path,
    given: Path | None,
    seed: int,
    master: str | None,
    settings: dict[str, Any],
) -> bool:
    workload = WORKLOADS[name]
    count = workload.prepare(place, given, seed)
    click.echo(f"{name}: {workload.about}; {count:,} records of {given or 'generated data'}.")
    with spark_session(name, master) as spark, terminal_view() as view:
        ended = _run(workload.pipeline(place), place, spark, [view], settings)
    if ended:
        for line in [*workload.verdict(place), f"The rows are in {place / 'output'}"]:
            click.echo(line)
    return ended


def _run(
    pipeline: Pipeline,
    place: Path,
    spark: SparkSession,
    listeners: list[Listener],
    settings: dict[str, Any],
) -> bool:
    """Runs to the end of the input; false if it was stopped before."""
    job = pipeline.start(
        checkpoint=str(place / "checkpoint"),
        spark=spark,
        until="end",
        listeners=listeners,
        **settings,
    )
    with graceful_stop(partial(job.stop, False), STOPPING):
        return job.wait().reason == "end"


class Findings(Listener):
    """Prints the findings of the demo between the lines of the view."""

    def __init__(self, output: Path, view: ProgressView) -> None:
        self._tail, self._announcer, self._view = Tail(output), Announcer(), view

    def on_epoch(self, progress: EpochProgress) -> None:
        """Prints what an epoch has found."""
        self._view.on_epoch(progress)
        self._say_fresh()

    def on_notice(self, notice: Notice) -> None:
        """Forwards the notice to the view."""
        self._view.on_notice(notice)

    def on_end(self, summary: RunSummary) -> None:
        """Prints the remaining findings, then how the run ended."""
        self._say_fresh()
        self._view.on_end(summary)

    def _say_fresh(self) -> None:
        for line in self._announcer.lines(self._tail.fresh()):
            self._view.say(line)


def prepare(directory: Path | None, marker: DemoMarker, *, resume: bool) -> Path:
    """A directory for one run, empty unless resumed. Directories of others are never touched."""
    if directory is None:
        directory = Path(tempfile.mkdtemp(prefix=f"headrace-{marker.demo}-"))
    directory.mkdir(parents=True, exist_ok=True)
    found = _marker_in(directory)
    if resume:
        if found != marker:
            raise HeadraceError(
                f"{directory} holds no {marker.demo} run with seed {marker.seed} to continue"
            )
        return directory
    if found is None and any(directory.iterdir()):
        raise HeadraceError(
            f"{directory} is not empty and not a demo's: choose another --dir, so that nothing of "
            "yours is lost"
        )
    for part in ("input", "output", "checkpoint"):
        shutil.rmtree(directory / part, ignore_errors=True)
    (directory / MARKER).write_bytes(msgspec.json.encode(marker))
    return directory


def _marker_in(directory: Path) -> DemoMarker | None:
    try:
        return msgspec.json.decode((directory / MARKER).read_bytes(), type=DemoMarker)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
