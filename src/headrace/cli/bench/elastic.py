"""`headrace bench rescale`, `deploy`, `balance`, `scaler`, `scale`: pipelines that change while
they run.
"""

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
from headrace.cli.options import FiniteRange
from headrace.engine.spark.java import check_java
from headrace.plan.elastic.settings import POLICIES

NOT_RECOVERED = "a recovered ledger is another one, so the figures mean nothing"
MISCOUNTED = "records were lost or counted twice, so the figures mean nothing"


@click.command(
    "rescale",
    epilog="""\b
Examples:
  headrace bench rescale --json out/rescale.json
  headrace bench rescale --state-keys 100000 --rounds 1 --no-peer""",
)
@number("--records", 2_000, "Records in a file.")
@number("--keys", 1_000, "Distinct keys in a file.")
@number("--state-keys", 1_000_000, "Keys in state before measuring starts.")
@number("--epochs", 60, "Measured files.")
@number("--warmup", 20, "Files before the measured ones.", "warmup_epochs", least=4)
@number("--slots", 2, "Cores that each system gets.")
@number("--seed", 1, "Seed of the input.", least=0)
@number("--rounds", 5, "How often the systems take turns.")
@click.option(
    "--peer/--no-peer", default=True, show_default=True, help="Also measure Spark's own way."
)
@work_dir_option
@json_file_option
def rescale(
    rounds: int, peer: bool, work_dir: Path | None, json_file: Path | None, **workload: Any
) -> None:
    """Change the number of slots under load; compare with stopping and repartitioning."""
    from headrace.bench.elastic.rescale import format_rescale, run_rescale
    from headrace.bench.workload import CountWorkload

    check_java()
    document = run_rescale(
        CountWorkload(**workload), peer=peer, rounds=rounds, work_dir=work_dir, say=say
    )
    tell(document, format_rescale(document), json_file, wrong=UNLIKE)


@click.command(
    "deploy",
    epilog="""\b
Examples:
  headrace bench deploy --json out/deploy.json
  headrace bench deploy --state-keys 100000 --rounds 1 --epochs 100""",
)
@number("--records", 2_000, "Records in a file.")
@number("--keys", 1_000, "Distinct keys in a file.")
@number("--state-keys", 1_000_000, "Keys in state before measuring starts.")
@number("--epochs", 160, "Measured files.", least=40)
@number("--warmup", 40, "Files before the measured ones.", "warmup_epochs", least=4)
@number("--slots", 2, "Slots, and cores that each version gets.")
@number("--seed", 1, "Seed of the input.", least=0)
@number("--rounds", 3, "How often it is measured.")
@work_dir_option
@json_file_option
def deploy(rounds: int, work_dir: Path | None, json_file: Path | None, **workload: Any) -> None:
    """Replace a computation under load; how late is any epoch?"""
    from headrace.bench.elastic.deploy import format_deploy, run_deploy
    from headrace.bench.workload import CountWorkload

    check_java()
    document = run_deploy(CountWorkload(**workload), rounds=rounds, work_dir=work_dir, say=say)
    tell(document, format_deploy(document), json_file, wrong=MISCOUNTED)


@click.command(
    "balance",
    epilog="""\b
Examples:
  headrace bench balance --json out/balance.json
  headrace bench balance --policy even --policy off --epochs 40 --moves-every 20""",
)
@number("--records", 4_000, "Records in an epoch.")
@number("--keys", 10_000, "Distinct keys.")
@click.option("--exponent", type=float, default=1.2, show_default=True, help="Zipf's exponent.")
@number("--slots", 8, "Slots, each with a thread of its own.", least=2)
@number("--epochs", 90, "Epochs.", least=20)
@number("--moves-every", 30, "After how many epochs the hot keys move.", least=15)
@number("--cost-us", 500, "How long each record sleeps (emulated service time).")
@click.option(
    "--policy",
    "policies",
    type=click.Choice(POLICIES),
    multiple=True,
    default=POLICIES,
    show_default=True,
    help="A policy to measure; may be given several times.",
)
@work_dir_option
@json_file_option
def balance(
    policies: tuple[str, ...], work_dir: Path | None, json_file: Path | None, **workload: Any
) -> None:
    """Spread the load of Zipf keys over slots while hot keys move (emulated service time)."""
    from headrace.bench.elastic.balance import BalanceWorkload, format_balance, run_balance

    check_java()
    document = run_balance(
        BalanceWorkload(**workload), policies=policies, work_dir=work_dir, say=say
    )
    tell(document, format_balance(document), json_file, wrong=MISCOUNTED)


@click.command(
    "scaler",
    epilog="""\b
Examples:
  headrace bench scaler --json out/scaler.json
  headrace bench scaler --cost-us 5000 --max-slots 16""",
)
@number("--cost-us", 2_000, "How long each record sleeps (emulated service time).")
@number("--slots", 2, "Slots at the start.")
@number("--max-slots", 8, "Slots that the scaler may give, each with a thread of its own.")
@number("--keys", 1_000, "Distinct keys.")
@click.option("--demand", type=FiniteRange(min=0.1), default=1.0, show_default=True,
              help="How many slots the low load keeps busy.")  # fmt: skip
@number("--factor", 3, "How many times higher the high load is.", least=2)
@seconds("--low-s", "How long the low load lasts, before and after.", "low_s", default=20.0)
@seconds("--high-s", "How long the high load lasts.", "high_s", default=40.0)
@number("--every", 2, "How many epochs one report covers.")
@work_dir_option
@json_file_option
def scaler(work_dir: Path | None, json_file: Path | None, **workload: Any) -> None:
    """Follow a load that triples and falls back (emulated service time)."""
    from headrace.bench.elastic.scaler import ScalerWorkload, format_scaler, run_scaler

    check_java()
    document = run_scaler(ScalerWorkload(**workload), work_dir=work_dir, say=say)
    tell(document, format_scaler(document), json_file, wrong=MISCOUNTED)


@click.command(
    "scale",
    epilog="""\b
Examples:
  headrace bench scale --json out/scale.json
  headrace bench scale --intervals 1000 --intervals 10000 --slots 64 --epochs 4""",
)
@click.option("--intervals", type=click.IntRange(min=64), multiple=True,
              default=(1_000, 10_000, 100_000, 500_000), show_default=True,
              help="Intervals, with the fewest slots; may be given several times.")  # fmt: skip
@click.option("--slots", type=click.IntRange(min=1), multiple=True, default=(64, 1_000, 10_000),
              show_default=True,
              help="Slots, with the most intervals; may be given several times.")  # fmt: skip
@number("--epochs", 8, "Measured epochs of each lap.", least=2)
@number("--laps", 3, "Laps of each size, each from a new checkpoint.")
@json_file_option
def scale(json_file: Path | None, **workload: Any) -> None:
    """Measure what an epoch costs the driver, by intervals and by slots; without Spark."""
    from headrace.bench.elastic.scale import ScaleWorkload, format_scale, run_scale

    document = run_scale(ScaleWorkload(**workload), say=say)
    tell(document, format_scale(document), json_file, wrong=NOT_RECOVERED)
