"""`headrace bench keyed-count`, `windowed-count` and `top-k`: counts beside peers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

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
from headrace.cli.options import Command, FiniteRange
from headrace.engine.spark.java import check_java
from headrace.errors import HeadraceError

Query = Literal["windowed-count", "top-k"]
# Repeated here, as the help of a command must not load what a benchmark needs.
PEERS_OF_WINDOWS: dict[Query, tuple[str, ...]] = {
    "windowed-count": ("spark-native", "spark-tws", "spark-tws-row", "pyflink", "bytewax"),
    "top-k": ("spark-native",),
}


def shape(*, records: int, epochs: int, rounds: int) -> Callable[[Command], Command]:
    """The options for how much is measured, with their defaults."""
    options = [
        number("--records", records, "Records per epoch."),
        number("--keys", 1_000, "Distinct keys."),
        number("--epochs", epochs, "Measured epochs."),
        number("--warmup", 3, "Epochs before the measured ones.", "warmup_epochs", least=0),
        number("--slots", 2, "Cores that each system gets."),
        number("--seed", 1, "Seed of the input.", least=0),
        number("--rounds", rounds, "How often the systems take turns."),
    ]

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.command(
    "keyed-count",
    epilog="""\b
Examples:
  headrace bench keyed-count --records 1000000 --keys 1000 --peers spark-native,spark-tws
  headrace bench keyed-count --records 2000 --epochs 40 --peers spark-native --json out/small.json
  headrace bench keyed-count --records 1000 --keys 1000 --state-keys 2000000 --peers ''""",
)
@shape(records=1_000_000, epochs=10, rounds=1)
@click.option(
    "--hook",
    type=click.Choice(["table", "record"]),
    default="table",
    show_default=True,
    help="Count whole tables, or add up values with a Python call per record.",
)
@click.option(
    "--state-keys",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Keys in state before measuring starts.",
)
@click.option(
    "--sink",
    type=click.Choice(["noop", "parquet"]),
    default="noop",
    show_default=True,
    help="Where results go.",
)
@click.option(
    "--peers",
    default="",
    metavar="A,B",
    help="spark-native, spark-tws, spark-tws-row, pyflink, bytewax.",
)
@click.option("--floor", is_flag=True, help="Also a bare Spark job beside a trivial pipeline.")
@click.option("--ours/--no-ours", default=True, show_default=True, help="Measure Headrace itself.")
@open_load
@work_dir_option
@json_file_option
def keyed_count(
    peers: str,
    rounds: int,
    floor: bool,
    ours: bool,
    rate: str,
    rate_seconds: float,
    rate_burst: int,
    work_dir: Path | None,
    json_file: Path | None,
    **workload: Any,
) -> None:
    """Count records per key, epoch by epoch."""
    # Imported here: the other verbs need not load what a benchmark needs.
    from headrace.bench.frame.result import format_table
    from headrace.bench.frame.system import FOREIGN, PEERS
    from headrace.bench.keyed_count import run_keyed_count
    from headrace.bench.latency.beside import format_beside
    from headrace.bench.workload import CountWorkload

    try:
        asked = CountWorkload(**workload)
    except ValueError as error:
        raise HeadraceError(str(error)) from error
    names = [name.strip() for name in peers.split(",") if name.strip()]
    known = (*PEERS, *FOREIGN)
    if unknown := [name for name in names if name not in known]:
        raise HeadraceError(
            f"keyed-count has no peer {unknown[0]!r}; choose from {', '.join(known)}"
        )
    if not names and not ours:
        raise HeadraceError("nothing to measure: name --peers, or leave --no-ours out")
    if rate and not ours:
        raise HeadraceError("an open load compares peers with Headrace: leave --no-ours out")
    load = OpenLoad.of(asked, names, rate, seconds=rate_seconds, burst=rate_burst)
    check_java()
    document = run_keyed_count(
        asked,
        names,
        ours=ours,
        rounds=rounds,
        floor=floor,
        work_dir=work_dir,
        say=say,
    )
    if load is not None:
        document = load.add_to(document, rounds=rounds, work_dir=work_dir, json_file=json_file)
    tell(document, format_beside(document, format_table), json_file, wrong=UNLIKE)


def _windowed(query: Query, help: str) -> click.Command:
    """The command for a query over windows."""

    peers_known = ", ".join(PEERS_OF_WINDOWS[query])
    examples = f"""\b
Examples:
  headrace bench {query} --peers spark-native
  headrace bench {query} --records 2000 --epochs 20 --peers spark-native --json out/small.json"""

    @click.command(query, help=help, epilog=examples)
    @shape(records=1_000_000, epochs=10, rounds=1)
    @click.option(
        "--hot",
        type=FiniteRange(0, 1, max_open=True),
        default=0.0,
        show_default=True,
        help="Share of records of one key.",
    )
    @click.option("--peers", default="", metavar="A,B", help=f"{peers_known}.")
    @open_load
    @work_dir_option
    @json_file_option
    def command(
        peers: str,
        rounds: int,
        rate: str,
        rate_seconds: float,
        rate_burst: int,
        work_dir: Path | None,
        json_file: Path | None,
        **workload: Any,
    ) -> None:
        from headrace.bench.frame.result import format_table
        from headrace.bench.latency.beside import format_beside
        from headrace.bench.windowed import run_windowed
        from headrace.bench.workload import CountWorkload

        names = [name.strip() for name in peers.split(",") if name.strip()]
        asked = CountWorkload(query=query, **workload)
        load = OpenLoad.of(asked, names, rate, seconds=rate_seconds, burst=rate_burst)
        check_java()
        document = run_windowed(asked, peers=names, rounds=rounds, work_dir=work_dir, say=say)
        if load is not None:
            document = load.add_to(document, rounds=rounds, work_dir=work_dir, json_file=json_file)
        tell(document, format_beside(document, format_table), json_file, wrong=UNLIKE)

    return command


windowed_count = _windowed(
    "windowed-count", "Count records per key in tumbling windows, emitted when they close."
)
top_k = _windowed("top-k", "The ten busiest keys of each window.")
