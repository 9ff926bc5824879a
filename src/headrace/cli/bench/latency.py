"""`headrace bench latency`: per-record latency under an open load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headrace.cli.bench.options import (
    UNLIKE,
    json_file_option,
    number,
    say,
    seconds,
    tell,
    work_dir_option,
)
from headrace.engine.spark.java import check_java


@click.command(
    "latency",
    epilog="""\b
Examples:
  headrace bench latency --rate 0.5 --json out/latency.json
  headrace bench latency --query windowed-count --rate 0.1,0.3,0.5,0.7,0.9 --json out/sweep.json
  headrace bench latency --query q11 --peers spark-native,spark-tws-row --json out/sessions.json
  headrace bench latency --rate 20000 --rounds 1""",
)
@click.option(
    "--query",
    type=click.Choice(["keyed-count", "windowed-count", "top-k", "q3", "q8", "q11"]),
    default="keyed-count",
    show_default=True,
    help="What is asked.",
)
@click.option(
    "--rate",
    default="0.5",
    show_default=True,
    metavar="R,S",
    help="The load: shares of each system's capacity, or records per second (above 2).",
)
@click.option(
    "--peers",
    default="spark-native",
    show_default=True,
    metavar="A,B",
    help="spark-native, spark-tws, spark-tws-row, bytewax (keyed-count), or ''.",
)
@number("--keys", 1_000, "Distinct keys.")
@seconds("--seconds", "How long each rate is kept up.", "seconds", default=15.0)
@seconds("--tick", "Input appears once in so many seconds.", "tick_s", default=0.1)
@number("--burst-records", 800_000, "Records of a burst, by which capacity is measured.", least=8)
@number("--slots", 2, "Cores that each system gets.")
@number("--seed", 1, "Seed of the input.", least=0)
@number("--rounds", 3, "How often the systems take turns.")
@work_dir_option
@json_file_option
def latency(
    rate: str,
    peers: str,
    rounds: int,
    work_dir: Path | None,
    json_file: Path | None,
    **workload: Any,
) -> None:
    """Let input arrive at a steady pace; how long until each record's result is visible?"""
    from headrace.bench.latency.arithmetic import rates_of
    from headrace.bench.latency.run import LatencyWorkload, format_latency, run_latency

    names = [name.strip() for name in peers.split(",") if name.strip()]
    rates, shape = rates_of(rate), LatencyWorkload(**workload)
    check_java()
    document = run_latency(shape, rates, names, rounds=rounds, work_dir=work_dir, say=say)
    tell(document, format_latency(document), json_file, wrong=UNLIKE)
