"""Where a file sink writes: a directory of a filesystem, or a prefix of a store."""

from __future__ import annotations

import os

from headrace.model.sink import Sink
from headrace.sinks.files import FileSink
from headrace.sinks.row_format import RowFormat
from headrace.sinks.stored.sink import StoredSink
from headrace.store.places import is_stored
from headrace.store.store import Store

Place = str | os.PathLike[str] | Store
"""A directory, a URL (`s3://bucket/out`), or a store."""


def file_sink(format: RowFormat, place: Place) -> Sink:
    """The sink that writes this format to this place."""
    if isinstance(place, Store) or is_stored(place):
        return StoredSink(place, format)
    return FileSink(place, format)
