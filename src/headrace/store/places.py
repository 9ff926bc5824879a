"""Places of files as users write them for sources and sinks: a path, or the URL of a store.

A URL here may contain a pattern, so it is taken apart as text; `store/location.py` opens it.
"""

from __future__ import annotations

import os

from headrace.errors import InvalidPipeline
from headrace.store.location import filesystem_path


def is_stored(given: str | os.PathLike[str]) -> bool:
    """Whether a place is in a store, and not on a filesystem."""
    return os.fspath(given).startswith("memory:") or filesystem_path(given) is None


def split_url(url: str) -> tuple[str, str, str]:
    """A URL as (store with its bucket, path, options): `s3://bucket`, `in/a.txt`, `?region=x`."""
    whole, question, options = url.partition("?")
    scheme, colon, rest = whole.partition("://")
    if not colon and ":/" in whole:
        raise InvalidPipeline(f"{whole} is a URL that a Path has changed: give it as a text")
    if not colon:  # "memory:1/in/a.txt"
        scheme, rest = "", whole
    root, _, path = rest.partition("/")
    return f"{scheme}{colon}{root}", path.lstrip("/"), f"{question}{options}" if options else ""
