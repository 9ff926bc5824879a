"""`headrace linear-road`: runs the Linear Road workload, times it and validates its answers."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from headrace.bench.frame.bars import Bar
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.cli import AS_A_PROCESS, options
from headrace.cli.bench.options import json_file_option, number, say
from headrace.cli.spark import spark_session
from headrace.errors import HeadraceError
from headrace.workloads.linear_road.input_files import (
    INDEX,
    Index,
    read_index,
    write_text,
    write_traffic,
)
from headrace.workloads.linear_road.measuring import (
    PERCENTILES,
    RoadOutcome,
    RoadSettings,
    clean,
    find_largest,
    load,
    measure,
    validate_again,
)
from headrace.workloads.linear_road.traffic import Traffic
from headrace.workloads.linear_road.validator import LIMIT_S

LARGEST_MAX = 1_000


@click.command(
    "linear-road",
    epilog="""\b
Examples:
  headrace linear-road --roads 1 --minutes 60
  headrace linear-road --roads 10 --minutes 60 --from-minute 50 --json out/linear-road.json
  headrace linear-road --input linear_road.dat --output out/sample
  headrace linear-road --find-largest --begin-minute 51 --from-minute 58 --output out/largest""",
)
@number("--roads", 1, "L, the number of roads; with --find-largest, the first that is tried.")
@number("--minutes", 60, "Length of the run. The load rises over it, to 1,700 reports/s and road.")
@number(
    "--begin-minute",
    0,
    "Simulate from this minute on; the roads are empty before. An average needs five minutes.",
    least=0,
)
@number("--seed", 1, "Seed of the traffic.", least=0)
@click.option(
    "--input",
    "given",
    type=click.Path(path_type=Path, exists=True),
    help="Input instead of simulated traffic: a text file of 15 integers per line, or a directory "
    "that an earlier run has written.",
)
@click.option(
    "--history",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Expenditure of past days for a text file: lines vid,day,xway,toll.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where input, answers and checkpoint go.  [default: a new temporary directory]",
)
@click.option(
    "--from-minute",
    type=click.IntRange(min=0),
    metavar="M",
    help="Time the answers from this minute on: input arrives at its own pace then, and what is "
    "before is loaded as fast as possible.  [default: everything as fast as possible, untimed]",
)
@click.option(
    "--speed",
    type=options.FiniteRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Pace of the timed part; 1 is real time.",
)
@click.option(
    "--validate/--no-validate", default=True, show_default=True, help="Check all answers."
)
@click.option(
    "--load-only",
    is_flag=True,
    help="Stop when all before --from-minute is loaded. The next run with the same --output goes "
    "on with the timed part.",
)
@click.option(
    "--validate-only",
    is_flag=True,
    help="Validate the answers that an earlier run, with --no-validate, has left in --output.",
)
@click.option("--find-largest", is_flag=True, help="Find the largest L that this machine holds.")
@options.master
@options.slots
@options.epoch_target("2s")
@json_file_option
@click.pass_context
def linear_road(
    ctx: click.Context,
    roads: int,
    minutes: int,
    begin_minute: int,
    seed: int,
    given: Path | None,
    history: Path | None,
    output: Path | None,
    from_minute: int | None,
    speed: float,
    validate: bool,
    load_only: bool,
    validate_only: bool,
    find_largest: bool,
    master: str | None,
    slots: int | None,
    epoch_target: str,
    json_file: Path | None,
) -> None:
    """Variable tolls on L roads: every answer must be right, and there within five seconds."""
    if ctx.obj == AS_A_PROCESS and sys.flags.hash_randomization:
        # With the hash seed of Spark's workers the driver may read small epochs by itself.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-m", "headrace.cli.main", *sys.argv[1:]]
        os.execve(sys.executable, command, environment)
    if (load_only or validate_only) and output is None:
        raise HeadraceError(
            "--load-only and --validate-only need --output: another run goes on there"
        )
    if load_only + validate_only + find_largest > 1:
        raise HeadraceError("give one of --load-only, --validate-only, --find-largest")
    if load_only and from_minute is None:
        raise HeadraceError("--load-only loads what is before --from-minute: give that, too")
    if history is not None and (given is None or given.is_dir()):
        raise HeadraceError("--history goes with a text file of --input")
    if begin_minute >= minutes:
        raise HeadraceError("--begin-minute must be less than --minutes: no vehicle drives before")
    place = output or Path(tempfile.mkdtemp(prefix="headrace-linear-road-"))
    settings = RoadSettings(
        from_minute=from_minute,
        speed=speed,
        slots=slots,
        epoch_target=epoch_target,
        validate=validate,
    )
    if find_largest:
        if given is not None or from_minute is None:
            raise HeadraceError("--find-largest simulates its input and needs --from-minute")
        traffic = Traffic(roads, minutes, seed, begin_minute=begin_minute)
        _largest(place, traffic, settings, master, json_file)
        return
    traffic = Traffic(roads, minutes, seed, begin_minute=begin_minute)
    directory, index = _input(place, given, history, traffic)
    if validate_only:
        _tell(validate_again(directory, place, say), place, json_file)
        return
    if load_only:
        with spark_session("linear-road", master) as spark:
            loaded = load(directory, index, place, settings, spark=spark, say=say)
        rate = "" if loaded.lines_per_s is None else f", {loaded.lines_per_s:,.0f} lines/s"
        click.echo(f"Loaded up to minute {loaded.from_minute}{rate}")
        return
    with spark_session("linear-road", master) as spark:
        outcome = measure(directory, index, place, settings, spark=spark, say=say)
    _tell(outcome, place, json_file)


def _input(
    place: Path, given: Path | None, history: Path | None, traffic: Traffic
) -> tuple[Path, Index]:
    """The directory of input files; they are made first, if need be."""
    if given is not None and given.is_dir():
        return given, read_index(given)
    directory = place / "input"
    if given is not None:
        return directory, write_text(directory, given, history)
    if not (directory / INDEX).exists():
        say(f"Simulating {traffic.roads} roads for {traffic.minutes} minutes ...")
    return directory, write_traffic(directory, traffic)


def _largest(
    place: Path,
    traffic: Traffic,
    settings: RoadSettings,
    master: str | None,
    json_file: Path | None,
) -> None:
    outcomes: list[RoadOutcome] = []
    with spark_session("linear-road", master) as spark:

        def held(roads: int) -> bool:
            here = place / f"roads-{roads}"
            clean(here)
            directory, index = _input(here, None, None, replace(traffic, roads=roads))
            outcome = measure(directory, index, here, settings, spark=spark, say=say)
            clean(here)
            outcomes.append(outcome)
            for line in _lines(outcome):
                click.echo(line)
            if outcome.held is None:
                return not outcome.timed["all"].late
            return outcome.held

        largest = find_largest(LARGEST_MAX, held, traffic.roads)
    click.echo(f"The largest L that was held: {largest}")
    if json_file is not None:
        runs = [msgspec.to_builtins(outcome) for outcome in outcomes]
        _write(json_file, {"benchmark": "linear-road-largest", "largest": largest, "runs": runs})


def _tell(outcome: RoadOutcome, place: Path, json_file: Path | None) -> None:
    for line in _lines(outcome):
        click.echo(line)
    click.echo(f"Input, answers and checkpoint are in {place}")
    if json_file is not None:
        _write(json_file, _document(outcome))
    if outcome.right is False:
        raise HeadraceError("the answers are not those of the rules: see above")


def _document(outcome: RoadOutcome) -> dict[str, Any]:
    """What was measured, in the form of all benchmarks."""
    worst = outcome.timed["all"].percentiles["p100"] if outcome.timed else None
    bar = Bar(f"Linear Road, L = {outcome.roads}: slowest answer, s", "at most", LIMIT_S, worst)
    return {
        "benchmark": "linear-road",
        **msgspec.to_builtins(outcome),
        "bars": [bar.as_json(outcome.held is True)] if outcome.timed else [],
        "machine": describe_machine() | {"load_average_before": outcome.load_before},
        "versions": describe_versions(),
    }


def _write(json_file: Path, document: Mapping[str, Any]) -> None:
    from headrace.bench.frame.result import write_document

    write_document(document, json_file)
    click.echo(f"Written to {json_file}")


def _lines(outcome: RoadOutcome) -> list[str]:
    """What was measured, for people."""
    loads = ", ".join(f"{load:.1f}" for load in outcome.load_after)
    lines = [
        f"L = {outcome.roads}: {outcome.lines:,} lines of {outcome.seconds / 60:g} minutes, run in "
        f"{outcome.run_s:,.0f} s on {outcome.cores} cores (load average at the end: {loads})",
        "  answers: " + ", ".join(f"{n:,} {kind}" for kind, n in sorted(outcome.answers.items())),
    ]
    if outcome.loading_lines_per_s is not None:
        lines.append(f"  as fast as possible: {outcome.loading_lines_per_s:,.0f} lines/s")
    if outcome.timed:
        names = "".join(f"{f'p{p:g}':>9}" for p in PERCENTILES)
        lines.append(f"  {'seconds':12}{'answers':>12}{'late':>9}{names}")
    for kind, latency in outcome.timed.items():
        shown = "".join(f"{value:9.2f}" for value in latency.percentiles.values())
        lines.append(f"  {kind:12}{latency.answers:12,}{latency.late:9,}{shown}")
    if outcome.verdict is not None:
        found = {
            what: sum(outcome.verdict[what].values())
            for what in ("checked", "missing", "wrong", "doubled", "unasked", "late")
        }
        lines.append("  validator: " + ", ".join(f"{n:,} {what}" for what, n in found.items()))
        lines += [f"    {example}" for example in outcome.verdict["examples"][:20]]
    if outcome.held is not None:
        lines.append(f"  L = {outcome.roads} is {'held' if outcome.held else 'NOT held'}")
    return lines
