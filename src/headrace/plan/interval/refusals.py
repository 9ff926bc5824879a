"""Where a checkpoint interval of more than one epoch cannot keep its promise (M7). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import InvalidPipeline
from headrace.plan.interval.cadence import Cadence


def refuse_interval(
    cadence: Cadence, *, location: str, in_directory: bool, once_only: Mapping[str, str]
) -> None:
    """Raises InvalidPipeline, before anything starts, where lost state could not be made again.

    - `in_directory`: whether the checkpoint lies in a directory, or in this process;
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
    if not in_directory:
        raise InvalidPipeline(
            f"checkpoint_every={cadence} needs a checkpoint in a directory that the driver and all "
            f"executors share, and {location} is none: state on executors' own disks is not "
            "supported. Run with checkpoint_every=1: small changes of state travel in the commit "
            "there, with one request per epoch"
        )
