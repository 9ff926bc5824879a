"""Places of files as users write them for sources and sinks: a path, or the URL of a store.

A URL here may contain a pattern, so it is taken apart; `store/location.py` opens it.
"""

from __future__ import annotations

import os

from headrace.store.location import checked_url, filesystem_path
from headrace.store.url import StoreUrl

OnePlace = str | os.PathLike[str]


def is_stored(given: OnePlace) -> bool:
    """Whether a place is in a store, and not on a filesystem."""
    return os.fspath(given).startswith("memory:") or filesystem_path(given) is None


def split_url(given: OnePlace, what: str) -> tuple[str, str, str]:
    """A URL as (store with its bucket, path, options): `s3://bucket`, `in/a.txt`, `?region=x`.

    InvalidPipeline if no store can have it; `what` says where the user has given it.
    """
    text = os.fspath(given)
    if text.startswith("memory:"):
        root, _, path = text.partition("/")
        return root, path.lstrip("/"), ""
    url = checked_url(given, what)
    _, question, options = url.location.partition("?")
    slash = "/" if url.prefix and text.partition("?")[0].endswith("/") else ""
    return StoreUrl(url.scheme, url.place, "").where(), url.prefix + slash, question + options
