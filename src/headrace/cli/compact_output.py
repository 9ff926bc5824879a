"""`headrace compact-output PLACE`: fewer, larger files in the output of a file sink."""

from __future__ import annotations

from pathlib import Path

import click

from headrace.errors import InvalidPipeline
from headrace.model.values.time import duration


@click.command(
    name="compact-output",
    epilog="""\b
Examples:
  headrace compact-output s3://bucket/out
  headrace compact-output s3://bucket/out --target-mb 512 --keep 6h
  headrace compact-output out/counts""",
)
@click.argument("place", metavar="PLACE")
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

    PLACE is where `sinks.jsonl` or `sinks.parquet` writes. The pipeline may run meanwhile, and so
    may readers that use `headrace.read_output`: they see each row once, and their cursors stay
    valid. On a URL, replaced files are deleted by a later compaction, or by the pipeline.

    In a directory, epochs that the sink holds back (`group_mb=`) are published now, as one group.
    Files that are already listed there are never changed.
    """
    from headrace.sinks.stored.compacting import compact_output as compact
    from headrace.sinks.stored.sink import owner_of
    from headrace.store.location import filesystem_path, open_store
    from headrace.store.places import is_stored, split_url

    if not is_stored(place):
        _publish_group(Path(filesystem_path(place) or place).expanduser().absolute(), target_mb)
        return
    root, path, options = split_url(place, "the place of an output")
    store = open_store(f"{root}/{path.strip('/')}".rstrip("/") + options)
    if owner_of(store) is None:
        raise _no_output(store.where())
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


def _publish_group(path: Path, target_mb: int) -> None:
    from headrace.sinks.grouped.groups import EpochGroups
    from headrace.sinks.high_water import highest_marker
    from headrace.sinks.stored.sink import owner_of
    from headrace.store.disk import DiskStore
    from headrace.system import REAL

    store, groups = DiskStore(path), EpochGroups(path, REAL)
    if owner_of(store) is None:
        raise _no_output(str(path))
    if not groups.exist():
        raise InvalidPipeline(
            f"{path} is a directory, in which every epoch appears by a rename and is never "
            "changed: whoever lists it would see rows twice, or not at all. Give the sink "
            "group_mb=, and epochs appear together, as few large files"
        )
    count = groups.publish(highest_marker(store.below("_high_water")), target_mb << 20)
    click.echo(f"{path}: {count:,} epochs that were held back are published.")


def _no_output(where: str) -> InvalidPipeline:
    return InvalidPipeline(
        f"there is no output of a file sink at {where}: name the place that sinks.jsonl or "
        "sinks.parquet of the pipeline writes to"
    )
