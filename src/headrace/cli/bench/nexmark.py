"""`headrace bench nexmark`: joins and sessions of Nexmark beside peers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headrace.cli.bench.loads import OpenLoad
from headrace.cli.bench.options import (
    UNLIKE,
    json_file_option,
    number,
    open_load,
    say,
    tell,
    work_dir_option,
)
from headrace.engine.spark.java import check_java


@click.command(
    "nexmark",
    epilog="""\b
Examples:
  headrace bench nexmark --query q3 --peers spark-native,spark-tws,spark-tws-row --json out/q3.json
  headrace bench nexmark --query q11 --peers spark-native,bytewax --rounds 3""",
)
@click.option(
    "--query",
    type=click.Choice(["q3", "q8", "q11"]),
    default="q3",
    show_default=True,
    help="A join for ever, a join within windows, or sessions.",
)
@number("--events", 500_000, "Events per epoch.", "records")
@number("--epochs", 6, "Measured epochs.")
@number("--warmup", 3, "Epochs before the measured ones.", "warmup_epochs", least=0)
@number("--slots", 2, "Cores that each system gets.")
@number("--seed", 1, "Seed of the events.", least=0)
@number("--rounds", 1, "How often the systems take turns.")
@click.option(
    "--peers",
    default="spark-native",
    show_default=True,
    metavar="A,B",
    help="spark-native, spark-tws, spark-tws-row, pyflink, bytewax.",
)
@open_load
@work_dir_option
@json_file_option
def nexmark(
    peers: str,
    rounds: int,
    rate: str,
    rate_seconds: float,
    rate_burst: int,
    work_dir: Path | None,
    json_file: Path | None,
    **workload: Any,
) -> None:
    """Join people with auctions, or find the sessions of bidders, as peers do."""
    from headrace.bench.frame.result import format_table
    from headrace.bench.latency.beside import format_beside
    from headrace.bench.windowed import run_windowed
    from headrace.bench.workload import CountWorkload

    names = [name.strip() for name in peers.split(",") if name.strip()]
    shape = CountWorkload(sink="parquet", **workload)
    load = OpenLoad.of(shape, names, rate, seconds=rate_seconds, burst=rate_burst)
    check_java()
    document = run_windowed(shape, peers=names, rounds=rounds, work_dir=work_dir, say=say)
    if load is not None:
        document = load.add_to(document, rounds=rounds, work_dir=work_dir, json_file=json_file)
    tell(document, format_beside(document, format_table), json_file, wrong=UNLIKE)
