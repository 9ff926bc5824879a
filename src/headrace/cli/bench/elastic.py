"""`headrace bench rescale`: benchmarks of pipelines that change while they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headrace.cli.bench.options import (
    UNLIKE,
    json_file_option,
    number,
    say,
    tell,
    work_dir_option,
)
from headrace.engine.spark.java import check_java


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
