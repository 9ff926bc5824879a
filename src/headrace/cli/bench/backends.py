"""`headrace bench backends`: the same operations on every state store."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.cli.bench.options import UNLIKE, json_file_option, number, say, tell, work_dir_option
from headrace.errors import HeadraceError


@click.command(
    "backends",
    epilog="""\b
Examples:
  headrace bench backends --json out/backends.json
  headrace bench backends --keys 1000 --stores segments,files,log --no-bytes""",
)
@click.option(
    "--keys",
    default="1000,1000000",
    show_default=True,
    help="Numbers of keys in state, one after the other.",
)
@click.option("--stores", default="", help="Which state stores.  [default: all]")
@number("--operations", 10_000, "Measured operations; nine of ten are writes.")
@number("--epoch", 1_000, "Operations that are made durable together.", "epoch_operations")
@number("--seed", 1, "Seed of the operations.", least=0)
@number("--rounds", 5, "Rounds of these operations, in which the stores take turns.")
@click.option(
    "--bytes/--no-bytes",
    "with_bytes",
    default=True,
    show_default=True,
    help="Also measure how many bytes an epoch writes.",
)
@work_dir_option
@json_file_option
def backends(
    keys: str,
    stores: str,
    rounds: int,
    with_bytes: bool,
    work_dir: Path | None,
    json_file: Path | None,
    **shape: int,
) -> None:
    """Write and read keys of 1 KB on every state store: segments, files, log, Redis, HBase."""
    from headrace.bench.backends.run import MANY_KEYS, format_backends, run_backends
    from headrace.bench.backends.stores import NAMES
    from headrace.bench.backends.workload import Operations

    try:
        counts = [int(text) for text in keys.split(",")]
    except ValueError:
        raise HeadraceError(f"--keys takes numbers such as 1000,1000000, not {keys!r}") from None
    document = run_backends(
        [Operations(keys=count, **shape) for count in counts],
        names=stores.split(",") if stores else NAMES,
        rounds=rounds,
        byte_keys=MANY_KEYS if with_bytes else 0,
        work_dir=work_dir,
        say=say,
    )
    tell(document, format_backends(document), json_file, wrong=UNLIKE)
