"""Where a file sink writes: a directory of a filesystem, or a prefix of a store."""

from __future__ import annotations

import os

from headrace.errors import InvalidPipeline
from headrace.model.sink import Sink
from headrace.model.values.time import duration
from headrace.sinks.files import FileSink
from headrace.sinks.grouped.groups import Grouping
from headrace.sinks.row_format import RowFormat
from headrace.sinks.stored.sink import StoredSink
from headrace.store.places import is_stored
from headrace.store.store import Store

GROUP_MB_MAX = 4096

Place = str | os.PathLike[str] | Store
"""A directory, a URL (`s3://bucket/out`), or a store."""


def file_sink(
    format: RowFormat, place: Place, *, group_mb: float | None = None, group_within: str = "10m"
) -> Sink:
    """The sink that writes this format to this place."""
    grouping = None
    if group_mb is not None:
        if not 0 < group_mb <= GROUP_MB_MAX:
            raise InvalidPipeline(f"group_mb={group_mb} is not between 0 and {GROUP_MB_MAX:,}")
        within = duration(group_within, what="group_within")
        grouping = Grouping(int(group_mb * (1 << 20)), within / 1e6)
    if isinstance(place, Store) or is_stored(place):
        if grouping is not None:
            raise InvalidPipeline(
                "group_mb= is for a directory of a filesystem: on a URL, headrace compact-output "
                "makes few large files of many small ones"
            )
        return StoredSink(place, format)
    return FileSink(place, format, grouping)
