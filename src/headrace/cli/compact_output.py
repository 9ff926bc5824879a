"""`headrace compact-output URL`: fewer, larger files in the output of a file sink."""

from __future__ import annotations

import click

from headrace.errors import InvalidPipeline
from headrace.model.values.time import duration


@click.command(
    name="compact-output",
    epilog="""\b
Examples:
  headrace compact-output s3://bucket/out
  headrace compact-output s3://bucket/out --target-mb 512 --keep 6h""",
)
@click.argument("place", metavar="URL")
@click.option(
    "--target-mb",
    type=click.IntRange(min=1, max=4096),
    default=128,
    show_default=True,
    metavar="N",
    help="How large a file becomes, about.",
)
@click.option(
    "--keep",
    default="1h",
    show_default=True,
    metavar="TIME",
    help="How long readers may still read the files that are replaced.",
)
@click.option(
    "--newest",
    type=click.IntRange(min=1),
    default=16,
    show_default=True,
    metavar="N",
    help="How many of the newest epochs are left alone.",
)
def compact_output(place: str, target_mb: int, keep: str, newest: int) -> None:
    """Turn many small files of an output into few large ones.

    URL is where `sinks.jsonl` or `sinks.parquet` writes, in a store. The pipeline may run
    meanwhile, and so may readers that use `headrace.read_output`: they see each row once, and
    their cursors stay valid. Replaced files are deleted by a later compaction, or by the pipeline.
    """
    from headrace.sinks.stored.compacting import compact_output as compact
    from headrace.sinks.stored.sink import owner_of
    from headrace.store.location import open_store
    from headrace.store.places import is_stored, split_url

    if not is_stored(place):
        raise InvalidPipeline(
            f"{place} is a directory, in which every epoch is a directory that appears by a "
            "rename: it cannot be compacted while others list it. Write to a URL, or to a table "
            "(sinks.delta)"
        )
    root, path, options = split_url(place, "the place of an output")
    store = open_store(f"{root}/{path.strip('/')}".rstrip("/") + options)
    if owner_of(store) is None:
        raise InvalidPipeline(f"there is no output of a file sink at {store.where()}")
    found = compact(
        store,
        target_bytes=target_mb << 20,
        keep_s=duration(keep, what="--keep") / 1e6,
        newest=newest,
    )
    click.echo(
        f"{store.where()}: {found.before:,} files became {found.after:,}; {found.deleted:,} files "
        "whose time was over are deleted."
    )
