"""`headrace bench WORKLOAD`: compares Headrace with its peers, on one machine in one run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headrace.cli.bench.elastic import balance, deploy, rescale, scale, scaler
from headrace.cli.bench.options import (
    UNLIKE,
    json_file_option,
    number,
    say,
    seconds,
    tell,
    work_dir_option,
)
from headrace.cli.options import Command
from headrace.engine.spark.java import check_java
from headrace.errors import HeadraceError


@click.group()
def bench() -> None:
    """Measure Headrace beside Spark's own streaming."""


def _shape(*, records: int, epochs: int, rounds: int) -> Callable[[Command], Command]:
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


@bench.command(
    "keyed-count",
    epilog="""\b
Examples:
  headrace bench keyed-count --records 1000000 --keys 1000 --peers spark-native,spark-tws
  headrace bench keyed-count --records 2000 --epochs 40 --peers spark-native --json out/small.json
  headrace bench keyed-count --records 1000 --keys 1000 --state-keys 2000000 --peers ''""",
)
@_shape(records=1_000_000, epochs=10, rounds=1)
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
@click.option("--peers", default="", metavar="A,B", help="spark-native, spark-tws, spark-tws-row.")
@click.option("--floor", is_flag=True, help="Also a bare Spark job beside a trivial pipeline.")
@click.option("--ours/--no-ours", default=True, show_default=True, help="Measure Headrace itself.")
@work_dir_option
@json_file_option
def keyed_count(
    peers: str,
    rounds: int,
    floor: bool,
    ours: bool,
    work_dir: Path | None,
    json_file: Path | None,
    **workload: Any,
) -> None:
    """Count records per key, epoch by epoch."""
    # Imported here: the other verbs need not load what a benchmark needs.
    from headrace.bench.frame.result import format_table
    from headrace.bench.keyed_count import run_keyed_count
    from headrace.bench.workload import CountWorkload

    try:
        shape = CountWorkload(**workload)
    except ValueError as error:
        raise HeadraceError(str(error)) from error
    names = [name.strip() for name in peers.split(",") if name.strip()]
    if not names and not ours:
        raise HeadraceError("nothing to measure: name --peers, or leave --no-ours out")
    check_java()
    document = run_keyed_count(
        shape,
        names,
        ours=ours,
        rounds=rounds,
        floor=floor,
        work_dir=work_dir,
        say=say,
    )
    tell(
        document,
        format_table(document),
        json_file,
        wrong=UNLIKE,
    )


@bench.command(
    "overhead",
    epilog="""\b
Examples:
  headrace bench overhead
  headrace bench overhead --records 500000 --rounds 5 --json out/overhead.json""",
)
@_shape(records=200_000, epochs=6, rounds=3)
@work_dir_option
@json_file_option
def overhead(rounds: int, work_dir: Path | None, json_file: Path | None, **workload: Any) -> None:
    """Measure the cost of exactly-once, and what causal logging adds to it."""
    from headrace.bench.overhead import format_overhead, run_overhead
    from headrace.bench.workload import CountWorkload

    check_java()
    document = run_overhead(
        CountWorkload(hook="record", sink="parquet", **workload),
        rounds=rounds,
        work_dir=work_dir,
        say=say,
    )
    tell(
        document,
        format_overhead(document),
        json_file,
        wrong="the counts were not right, so the times mean nothing",
    )


@bench.command(
    "recovery",
    epilog="""\b
Examples:
  headrace bench recovery --json out/recovery.json
  headrace bench recovery --systems executor-kill,spark-native-executor-kill --rounds 3""",
)
@number("--executors", 3, "Executors of one core each.", least=2)
@number("--keys", 100, "Distinct keys.")
@number("--records", 200, "Records in a file.")
@seconds("--interval", "Seconds per file.", "interval_s")
@number("--warm", 15, "Files that define the usual latency.", "warm_files", least=3)
@seconds("--lease", "Seconds of the lease of a leader with a standby.", "lease_s")
@click.option("--systems", default="", metavar="A,B", help="Only these systems.  [default: all]")
@number("--rounds", 1, "How often the systems take turns.")
@json_file_option
def recovery(systems: str, rounds: int, json_file: Path | None, **workload: Any) -> None:
    """Kill executors and drivers; measure until latency is as before."""
    from headrace.bench.recovery import SYSTEMS, Recovery, format_recovery, run_recovery

    check_java()
    names = [name.strip() for name in systems.split(",") if name.strip()] or list(SYSTEMS)
    document = run_recovery(Recovery(**workload), names, rounds=rounds, say=say)
    tell(
        document,
        format_recovery(document),
        json_file,
        wrong="a system lost or doubled records, so its time means nothing",
    )


@bench.command(
    "growth",
    epilog="""\b
Examples:
  headrace bench growth --json out/growth.json
  headrace bench growth --files 10000 --per-epoch 50""",
)
@number("--files", 50_000, "Files that appear in total.")
@number("--per-epoch", 100, "Files that appear per epoch.")
@work_dir_option
@json_file_option
def growth(work_dir: Path | None, json_file: Path | None, **workload: Any) -> None:
    """Watch a directory fill up; epochs, log and snapshots must not grow with it."""
    from headrace.bench.growth import Growth, format_growth, run_growth

    document = run_growth(Growth(**workload), work_dir=work_dir, say=say)
    tell(
        document,
        format_growth(document),
        json_file,
        wrong="files were lost or read twice, so the times mean nothing",
    )


@bench.command(
    "stores",
    epilog="""\b
Examples:
  headrace bench stores --json out/stores.json
  headrace bench stores --server ministack --rounds 3""",
)
@click.option(
    "--server", default="", help="versitygw or ministack.  [default: the first to be had]"
)
@number("--keys", 1_000, "Distinct keys.")
@number("--slots", 2, "Cores that each run gets.")
@number("--seed", 1, "Seed of the input.", least=0)
@number("--rounds", 1, "How often the stores take turns.")
@work_dir_option
@json_file_option
def stores(
    server: str,
    keys: int,
    slots: int,
    seed: int,
    rounds: int,
    work_dir: Path | None,
    json_file: Path | None,
) -> None:
    """Keep the checkpoint on a disk and on an S3 server; compare time and count requests."""
    from headrace.bench.stores import format_stores, run_stores, shapes_of

    check_java()
    large, small = shapes_of(keys, slots, seed)
    document = run_stores(large, small, server=server, rounds=rounds, work_dir=work_dir, say=say)
    tell(document, format_stores(document), json_file, wrong=UNLIKE)


def _windowed(query: str, help: str) -> None:
    """Adds a command for a query over windows."""

    examples = f"""\b
Examples:
  headrace bench {query} --peers spark-native
  headrace bench {query} --records 2000 --epochs 20 --peers spark-native --json out/small.json"""

    @bench.command(query, help=help, epilog=examples)
    @_shape(records=1_000_000, epochs=10, rounds=1)
    @click.option(
        "--hot",
        type=click.FloatRange(0, 1, max_open=True),
        default=0.0,
        show_default=True,
        help="Share of records of one key.",
    )
    @click.option("--peers", default="", help="spark-native: the same query in Spark's own words.")
    @work_dir_option
    @json_file_option
    def command(
        peers: str, rounds: int, work_dir: Path | None, json_file: Path | None, **workload: Any
    ) -> None:
        from headrace.bench.frame.result import format_table
        from headrace.bench.windowed import run_windowed
        from headrace.bench.workload import CountWorkload

        if peers not in ("", "spark-native"):
            raise HeadraceError(f"{query} has one peer, spark-native, not {peers!r}")
        shape = CountWorkload(query=query, **workload)  # type: ignore[arg-type]
        check_java()
        document = run_windowed(
            shape,
            native=bool(peers),
            rounds=rounds,
            work_dir=work_dir,
            say=say,
        )
        tell(
            document,
            format_table(document),
            json_file,
            wrong=UNLIKE,
        )


bench.add_command(rescale)
bench.add_command(deploy)
bench.add_command(balance)
bench.add_command(scaler)
bench.add_command(scale)
_windowed("windowed-count", "Count records per key in tumbling windows, emitted when they close.")
_windowed("top-k", "The ten busiest keys of each window.")
