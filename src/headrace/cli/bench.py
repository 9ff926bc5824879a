"""`headrace bench WORKLOAD`: Headrace beside its peers, on one machine in one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headrace.cli.java import check_java
from headrace.errors import HeadraceError


@click.group()
def bench() -> None:
    """Measure Headrace beside Spark's own streaming."""


_work_dir = click.option(
    "--dir",
    "work_dir",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="For input and checkpoints.  [default: a temporary directory]",
)
_json_file = click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write everything that was measured to this file.",
)


def _tell(document: dict[str, Any], shown: str, json_file: Path | None, *, wrong: str) -> None:
    """Shows and keeps what was measured; results that are not right are an error, after that."""
    from headrace.bench.result import write_document

    click.echo(shown)
    if json_file is not None:
        write_document(document, json_file)
        click.echo(f"\nWritten to {json_file}")
    if not document["results_equal"]:
        raise HeadraceError(wrong)


@bench.command(
    "keyed-count",
    epilog="""\b
Examples:
  headrace bench keyed-count --records 1000000 --keys 1000 --peers spark-native,spark-tws
  headrace bench keyed-count --records 2000 --epochs 40 --peers spark-native --json out/small.json
  headrace bench keyed-count --records 1000 --keys 1000 --state-keys 2000000 --peers ''""",
)
@click.option("--records", default=1_000_000, show_default=True, help="Records per epoch.")
@click.option("--keys", default=1_000, show_default=True, help="Distinct keys in an epoch.")
@click.option("--epochs", default=10, show_default=True, help="Measured epochs.")
@click.option(
    "--warmup", "warmup_epochs", default=3, show_default=True, help="Epochs before those."
)
@click.option(
    "--hook",
    type=click.Choice(["table", "record"]),
    default="table",
    show_default=True,
    help="Count whole tables, or with a Python call per record.",
)
@click.option(
    "--state-keys", default=0, show_default=True, help="Keys in state before measuring starts."
)
@click.option(
    "--sink",
    type=click.Choice(["noop", "parquet"]),
    default="noop",
    show_default=True,
    help="Where results go.",
)
@click.option("--slots", default=2, show_default=True, help="Cores that each system gets.")
@click.option("--seed", default=1, show_default=True, help="Of the input.")
@click.option("--peers", default="", metavar="A,B", help="spark-native, spark-tws, spark-tws-row.")
@click.option("--rounds", default=1, show_default=True, help="Take turns this often.")
@click.option("--floor", is_flag=True, help="Also a bare Spark job beside a trivial pipeline.")
@click.option("--ours/--no-ours", default=True, show_default=True, help="Measure Headrace itself.")
@_work_dir
@_json_file
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
    # Here, not above: the other verbs need not load what a benchmark needs.
    from headrace.bench.keyed_count import run_keyed_count
    from headrace.bench.result import format_table
    from headrace.bench.workload import KeyedCount

    try:
        shape = KeyedCount(**workload)
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
        say=lambda line: click.echo(line, err=True),
    )
    _tell(
        document,
        format_table(document),
        json_file,
        wrong="the systems did not count alike, so their times mean nothing",
    )


@bench.command(
    "overhead",
    epilog="""\b
Examples:
  headrace bench overhead
  headrace bench overhead --records 500000 --rounds 5 --json out/overhead.json""",
)
@click.option("--records", default=200_000, show_default=True, help="Records per epoch.")
@click.option("--keys", default=1_000, show_default=True, help="Distinct keys in an epoch.")
@click.option("--epochs", default=6, show_default=True, help="Measured epochs.")
@click.option(
    "--warmup", "warmup_epochs", default=3, show_default=True, help="Epochs before those."
)
@click.option("--slots", default=2, show_default=True, help="Cores.")
@click.option("--seed", default=1, show_default=True, help="Of the input.")
@click.option("--rounds", default=3, show_default=True, help="Take turns this often.")
@_work_dir
@_json_file
def overhead(rounds: int, work_dir: Path | None, json_file: Path | None, **workload: Any) -> None:
    """What exactly-once costs, and what causal logging adds to it."""
    from headrace.bench.overhead import format_overhead, run_overhead
    from headrace.bench.workload import KeyedCount

    check_java()
    document = run_overhead(
        KeyedCount(hook="record", sink="parquet", **workload),
        rounds=rounds,
        work_dir=work_dir,
        say=lambda line: click.echo(line, err=True),
    )
    _tell(
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
@click.option("--executors", default=3, show_default=True, help="Executors of one core each.")
@click.option("--keys", default=100, show_default=True, help="Distinct keys.")
@click.option("--records", default=200, show_default=True, help="Records in a file.")
@click.option("--interval", "interval_s", default=1.0, show_default=True, help="Seconds a file.")
@click.option(
    "--warm", "warm_files", default=15, show_default=True, help="Files that say what is usual."
)
@click.option(
    "--lease", "lease_s", default=1.0, show_default=True, help="Seconds, of a standby's leader."
)
@click.option("--systems", default="", metavar="A,B", help="Some of them only.  [default: all]")
@click.option("--rounds", default=1, show_default=True, help="Take turns this often.")
@_json_file
def recovery(systems: str, rounds: int, json_file: Path | None, **workload: Any) -> None:
    """Kill executors and drivers; measure until latency is as before."""
    from headrace.bench.recovery import SYSTEMS, Recovery, format_recovery, run_recovery

    check_java()
    names = [name.strip() for name in systems.split(",") if name.strip()] or list(SYSTEMS)
    document = run_recovery(
        Recovery(**workload), names, rounds=rounds, say=lambda line: click.echo(line, err=True)
    )
    _tell(
        document,
        format_recovery(document),
        json_file,
        wrong="a system lost or doubled records, so its time means nothing",
    )


def _windowed(query: str, help: str) -> None:
    """Adds a command for a query over windows."""

    @bench.command(query, help=help)
    @click.option("--records", default=1_000_000, show_default=True, help="Records per epoch.")
    @click.option("--keys", default=1_000, show_default=True, help="Distinct keys.")
    @click.option("--epochs", default=10, show_default=True, help="Measured epochs.")
    @click.option(
        "--warmup", "warmup_epochs", default=3, show_default=True, help="Epochs before those."
    )
    @click.option("--hot", default=0.0, show_default=True, help="Share of records of one key.")
    @click.option("--slots", default=2, show_default=True, help="Cores that each system gets.")
    @click.option("--seed", default=1, show_default=True, help="Of the input.")
    @click.option("--peers", default="", help="spark-native: the same query in Spark's own words.")
    @click.option("--rounds", default=1, show_default=True, help="Take turns this often.")
    @_work_dir
    @_json_file
    def command(
        peers: str, rounds: int, work_dir: Path | None, json_file: Path | None, **workload: Any
    ) -> None:
        from headrace.bench.result import format_table
        from headrace.bench.windowed import run_windowed
        from headrace.bench.workload import KeyedCount

        if peers not in ("", "spark-native"):
            raise HeadraceError(f"{query} has one peer, spark-native, not {peers!r}")
        shape = KeyedCount(query=query, **workload)  # type: ignore[arg-type]
        check_java()
        document = run_windowed(
            shape,
            native=bool(peers),
            rounds=rounds,
            work_dir=work_dir,
            say=lambda line: click.echo(line, err=True),
        )
        _tell(
            document,
            format_table(document),
            json_file,
            wrong="the systems did not count alike, so their times mean nothing",
        )


_windowed("windowed-count", "Count records per key in tumbling windows, emitted when they close.")
_windowed("top-k", "The ten busiest keys of each window.")
