"""Where a checkpoint interval of more than one epoch cannot keep its promise (M7). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import InvalidPipeline
from headrace.plan.interval.cadence import Cadence


def refuse_interval(
    cadence: Cadence, *, location: str, in_reach: bool, once_only: Mapping[str, str]
) -> None:
    """Raises InvalidPipeline, before anything starts, where lost state could not be made again.

    - `in_reach`: whether the next task of a slot finds what the last one has only written: in a
      directory that all share, in this process, or on the disk of the slot's own executor;
    - `once_only`: stream -> its source, for sources that cannot read committed input again.
    """
    if cadence.is_each_epoch:
        return
    for stream, source in once_only.items():
        raise InvalidPipeline(
            f"checkpoint_every={cadence} needs input that can be read again since the last "
            f"checkpoint, and stream {stream!r} ({source}) cannot: run with checkpoint_every=1, or "
            "write the stream to files first and read those"
        )
    if not in_reach:
        raise InvalidPipeline(
            f"checkpoint_every={cadence} keeps changes of state on executors' own disks where the "
            f"checkpoint is a URL ({location}). That needs slots that stay where their disk is, "
            "which Spark Connect cannot promise, and room there (local_cache= must not be 0). Run "
            "with checkpoint_every=1: small changes of state travel in the commit there, with one "
            "request per epoch"
        )
