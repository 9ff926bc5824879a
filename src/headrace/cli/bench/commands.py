"""`headrace bench WORKLOAD`: compares Headrace with its peers, on one machine in one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headrace.cli.bench.backends import backends
from headrace.cli.bench.counts import keyed_count, shape, top_k, windowed_count
from headrace.cli.bench.elastic import balance, deploy, rescale, scale, scaler
from headrace.cli.bench.kafka import kafka
from headrace.cli.bench.latency import latency
from headrace.cli.bench.memory import eviction, memory
from headrace.cli.bench.nexmark import nexmark
from headrace.cli.bench.options import (
    UNLIKE,
    json_file_option,
    number,
    say,
    seconds,
    tell,
    work_dir_option,
)
from headrace.cli.bench.papers import paper, report
from headrace.engine.spark.java import check_java


@click.group(
    epilog="""\b
Examples:
  headrace bench keyed-count --records 1000000 --keys 1000 --json out/keyed-count.json
  headrace bench recovery --json out/recovery.json"""
)
def bench() -> None:
    """Measure Headrace beside Spark's own streaming."""


@bench.command(
    "overhead",
    epilog="""\b
Examples:
  headrace bench overhead
  headrace bench overhead --records 500000 --rounds 5 --json out/overhead.json""",
)
@shape(records=200_000, epochs=6, rounds=5)
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
  headrace bench recovery --systems executor-kill,spark-native-executor-kill --rounds 3
  headrace bench recovery --replay --rates 1000,50000 --rounds 3""",
)
@number("--executors", 3, "Executors of one core each.", least=2)
@number("--keys", 100, "Distinct keys.")
@number("--records", 200, "Records in a file.")
@seconds("--interval", "Seconds per file.", "interval_s")
@seconds("--standby-interval", "The same where a standby waits.", "standby_interval_s", default=0.5)
@number("--warm", 15, "Files that define the usual latency.", "warm_files", least=3)
@seconds("--lease", "Seconds of the lease of a leader with a standby.", "lease_s")
@click.option("--systems", default="", metavar="A,B", help="Only these systems.  [default: all]")
@number("--rounds", 1, "How often the systems take turns.")
@click.option("--replay", is_flag=True, help="Compare with source replay instead (SEEP), by rate.")
@click.option("--rates", default="", metavar="N,M", help="With --replay: records per second.")
@click.option(
    "--intervals", default="", metavar="N,M", help="With --replay: epochs between checkpoints."
)
@json_file_option
def recovery(
    systems: str,
    rounds: int,
    json_file: Path | None,
    *,
    replay: bool,
    rates: str,
    intervals: str,
    **workload: Any,
) -> None:
    """Kill executors and drivers; measure until latency is as before."""
    from headrace.bench.recovery.kills import SYSTEMS, Recovery, format_recovery, run_recovery

    check_java()
    if replay:
        chosen = {
            "rates": _numbers("--rates", rates),
            "intervals": _numbers("--intervals", intervals),
        }
        _recovery_by_replay({k: v for k, v in chosen.items() if v}, rounds, json_file)
        return
    names = [name.strip() for name in systems.split(",") if name.strip()] or list(SYSTEMS)
    document = run_recovery(Recovery(**workload), names, rounds=rounds, say=say)
    tell(
        document,
        format_recovery(document),
        json_file,
        wrong="a system lost or doubled records, so its time means nothing",
    )


def _numbers(option: str, given: str) -> tuple[int, ...]:
    chosen = [number.strip() for number in given.split(",") if number.strip()]
    if any(not number.isdigit() or not int(number) for number in chosen):
        raise click.UsageError(f"{option} takes whole numbers above 0 such as 10,500: {given}")
    return tuple(map(int, chosen))


def _recovery_by_replay(chosen: dict[str, Any], rounds: int, json_file: Path | None) -> None:
    from headrace.bench.recovery.replaying import Replaying, format_replaying, run_replaying

    document = run_replaying(Replaying(**chosen), rounds=rounds, say=say)
    tell(document, format_replaying(document), json_file, wrong=UNLIKE)


@bench.command(
    "growth",
    epilog="""\b
Examples:
  headrace bench growth --json out/growth.json
  headrace bench growth --axis files --files 10000 --per-epoch 50
  headrace bench growth --axis slots --axis epochs --epochs 2000""",
)
@number("--files", 50_000, "Files that appear in total.")
@number("--per-epoch", 100, "Files that appear per epoch.")
@number("--epochs", 20_000, "Epochs of the run whose length is the axis.", least=200)
@click.option(
    "--axis", "axes", multiple=True,
    type=click.Choice(["files", "records", "keys", "state", "levels", "slots", "epochs"]),
    help="An axis; may be given several times.  [default: all]",
)  # fmt: skip
@work_dir_option
@json_file_option
def growth(
    axes: tuple[str, ...], epochs: int, work_dir: Path | None, json_file: Path | None, **files: Any
) -> None:
    """Measure how the cost of an epoch grows, along several axes; without Spark."""
    from headrace.bench.growing.run import format_all, run_all
    from headrace.bench.growth import Growth

    document = run_all(axes, Growth(**files), epochs=epochs, work_dir=work_dir, say=say)
    tell(
        document,
        format_all(document),
        json_file,
        wrong="records were lost or counted twice, so the times mean nothing",
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


@bench.command(
    "interval",
    epilog="""\b
Examples:
  headrace bench interval --json out/interval.json
  headrace bench interval --every 1 --every 8 --epochs 48 --rounds 1""",
)
@click.option(
    "--every",
    type=click.IntRange(min=1),
    multiple=True,
    default=(1, 4, 16),
    show_default=True,
    help="An interval in epochs. May be given several times; the largest runs on Spark, too.",
)
@number("--records", 4_000, "Records per epoch.")
@number("--keys", 4_000, "Distinct keys.")
@number("--epochs", 96, "Measured epochs of each run on Spark.")
@number("--counted", 96, "Epochs whose syncs are counted.")
@number("--warmup", 16, "Epochs before the measured ones.", least=0)
@number("--slots", 2, "Cores that each run gets.")
@number("--rounds", 8, "How often the pipeline runs on Spark.")
@work_dir_option
@json_file_option
def interval(json_file: Path | None, **given: Any) -> None:
    """Count what a checkpoint interval saves; time epochs while a checkpoint is made."""
    from headrace.bench.interval import format_interval, run_interval

    check_java()
    document = run_interval(**given, say=say)
    tell(document, format_interval(document), json_file, wrong=UNLIKE)


bench.add_command(keyed_count)
bench.add_command(windowed_count)
bench.add_command(top_k)
bench.add_command(backends)
bench.add_command(latency)
bench.add_command(nexmark)
bench.add_command(kafka)
bench.add_command(rescale)
bench.add_command(deploy)
bench.add_command(balance)
bench.add_command(scaler)
bench.add_command(scale)
bench.add_command(memory)
bench.add_command(eviction)
bench.add_command(paper)
bench.add_command(report)
