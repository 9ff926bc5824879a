"""`headrace state import`: state to begin with."""

from __future__ import annotations

import click

from headrace.cli import options
from headrace.plan.progress import counted
from headrace.plan.state.applied import SEGMENTS


@click.command(
    "import",
    short_help="Fill the state of a computation before its first epoch.",
    epilog="""\b
Examples:
  headrace state import state/orders shop.orders:pipeline --computation Orders --input o.parquet
  headrace state import state/orders shop.orders:pipeline --computation Orders \\
      --input 'exports/*.parquet' --key order_id --written-at 2026-01-31T00:00:00Z""",
)
@click.argument("checkpoint", metavar="DIR|URL")
@click.argument("target", metavar="MODULE:NAME")
@click.option("--computation", required=True, metavar="NAME", help="Whose state it is.")
@click.option(
    "--input",
    "inputs",
    required=True,
    multiple=True,
    metavar="FILES",
    help="Parquet: a file, a directory, a pattern or a URL. May be given several times.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="COLUMN",
    help="The column of the key; several for a key of several parts.  [default: the columns by "
    "which the computation is keyed, or `key`]",
)
@click.option(
    "--written-at",
    metavar="TIME",
    help="When the values were written, where they have a TTL: 2026-01-31T00:00:00Z.",
)
@click.option(
    "--slots",
    type=click.IntRange(1, 10_000),
    help="How many slots it begins with.  [default: as the pipeline says, or 8]",
)
@options.state
def import_(
    checkpoint: str,
    target: str,
    computation: str,
    inputs: tuple[str, ...],
    keys: tuple[str, ...],
    written_at: str | None,
    slots: int | None,
    state: str,
) -> None:
    """Fill the state of a computation from Parquet files, before the first epoch.

    A row is a key, and columns have the names of its fields and maps, as `headrace state export`
    writes them. All rows are checked first: types, unknown columns, two rows of one key. A field
    without a column has its initial value. The import happens as a whole or not at all, and a
    command that was interrupted can be given again. It counts as epoch 1, so the pipeline begins
    with epoch 2. A checkpoint that has run takes no import.
    """
    from headrace.cli.targets import load_pipeline

    found = load_pipeline(target).import_state(
        computation,
        list(inputs),
        checkpoint=checkpoint,
        key=keys,
        written_at=_instant(written_at),
        slots=slots,
        state=state,
    )
    click.echo(
        f"{found.pipeline}: {computation!r} begins with {counted(found.keys, 'key')} of "
        f"{counted(found.rows, 'row')}, in {counted(found.slots, 'slot')} ({found.bytes:,} bytes), "
        f"in {found.location}."
    )
    if found.state != SEGMENTS:
        click.echo(f"Its state is kept in {found.state!r}: start it with --state {found.state}")


def _instant(given: str | None) -> int | None:
    if given is None:
        return None
    from datetime import datetime

    from headrace.model.values.time import instant

    try:
        return instant(datetime.fromisoformat(given), what="--written-at")
    except (TypeError, ValueError) as error:
        raise click.UsageError(f"--written-at {given}: {error}") from None
