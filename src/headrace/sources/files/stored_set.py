"""The files of a source in a store: URLs with patterns, or a whole store, turned into names.

    s3://bucket/in/*.jsonl?region=eu-central-1     a pattern; `**` stands for any directories
    s3://bucket/in/                                everything below a prefix
    s3://bucket/in/a.jsonl                         one object, or everything below that prefix

A `?` begins the options of a URL, so it is no wildcard there; `*` and `[...]` are. A store has no
directories: a prefix that holds nothing is an empty one, and may be watched.

A listing says the size and the version of every object. They are kept until the next listing, so
that planning and comparing need no requests.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from headrace.errors import InvalidPipeline, SourceError
from headrace.sources.files.directories import NOTHING
from headrace.sources.files.file_set import FileSet, OnePath
from headrace.sources.files.input_file import InputFile
from headrace.sources.files.stored_file import StoredFile
from headrace.store.location import open_store
from headrace.store.places import split_url
from headrace.store.store import ObjectInfo, Store


class StoredFileSet(FileSet):
    """The objects below some prefixes, or that match some patterns, of one store."""

    look_every_s = 1.0

    def __init__(self, given: Sequence[OnePath] | Store, *, kind: str, watch: bool) -> None:
        self.watch = watch
        self._infos: dict[str, ObjectInfo] = {}
        if isinstance(given, Store):
            self._store: Store | None = given
            self._is_own = False
            self._location = given.location
            self.written = (given.where(),)
            self._shown = given.where()
            self._patterns: tuple[str, ...] = ("",)
            return
        urls = [split_url(url, f"the place given to sources.{kind}") for url in given]
        roots = {(root, options) for root, _, options in urls}
        if len(roots) > 1:
            raise InvalidPipeline(
                f"sources.{kind} reads from one bucket, with one set of options: "
                f"{' and '.join(sorted(root for root, _ in roots))} are two. Read them as two "
                "streams, and merge these"
            )
        [(root, options)] = roots
        paths = [path for _, path, _ in urls]
        base = os.path.commonpath(["/" + self._anchor(path) for path in paths]).strip("/")
        self.written = tuple(f"{root}/{path}" for path in paths)
        self._store = None
        self._is_own = True
        self._shown = f"{root}/{base}".rstrip("/")
        self._location = f"{self._shown}{options}"
        self._patterns = tuple(path[len(base) :].lstrip("/") for path in paths)

    def __getstate__(self) -> dict[str, Any]:
        # Tasks open the store by themselves, and do not need what was listed.
        fresh: dict[str, Any] = {"_infos": {}, "_store": None if self._is_own else self._store}
        return {**self.__dict__, **fresh}

    @property
    def store(self) -> Store:
        """The store of the base, opened at its first use in this process."""
        if self._store is None:
            self._store = open_store(self._location)
        return self._store

    @property
    def base(self) -> str:
        return self._shown

    def path(self, name: str) -> str:
        return name

    def file(self, name: str) -> InputFile:
        return StoredFile(self.store, name, self._infos.get(name), f"{self._shown}/{name}")

    def walk(self, skip: Container[str] = NOTHING) -> Iterator[str | None]:
        found: dict[str, ObjectInfo] = {}
        for pattern in self._patterns:
            for info in self._matches(pattern):
                if info is None:
                    yield None
                elif info.name not in found:
                    found[info.name] = self._infos[info.name] = info
                    if info.name not in skip:
                        yield info.name
        self._infos = found

    def named(self, found: Iterable[str]) -> list[str]:
        return sorted(found)

    def nothing(self) -> str:
        return f"nothing in the store matches {self}"

    def _anchor(self, path: str) -> str:
        """The longest prefix that a path names without a wildcard, of whole components."""
        parts = path.split("/")
        fixed = next((i for i, part in enumerate(parts) if glob.has_magic(part)), None)
        if fixed is not None:
            return "/".join(parts[:fixed])
        return path.rstrip("/") if self.watch or path.endswith("/") else "/".join(parts[:-1])

    def _matches(self, pattern: str) -> Iterator[ObjectInfo | None]:
        if glob.has_magic(pattern):
            wanted = _Pattern(pattern)
            for info in self._below(self._anchor(pattern)):
                if info is None or wanted.matches(info.name):
                    yield info
            return
        if not pattern or self.watch or pattern.endswith("/"):
            yield from self._below(pattern.rstrip("/"))
            return
        try:
            yield self.store.stat(pattern)
            return
        except FileNotFoundError:
            pass  # a prefix, perhaps
        is_empty = True
        for info in self._below(pattern):
            is_empty = is_empty and info is None
            yield info
        if is_empty:
            raise SourceError(f"there is nothing at {self._shown}/{pattern}: correct the URL")

    def _below(self, directory: str) -> Iterator[ObjectInfo | None]:
        """All objects below a prefix that are data."""
        skipped = len(directory) + 1 if directory else 0
        for info in self.store.walk(directory):
            if info is None or not any(p[:1] in "._" for p in info.name[skipped:].split("/")):
                yield info


class _Pattern:
    """A pattern over the components of a name: `**` stands for any number of them."""

    def __init__(self, pattern: str) -> None:
        self._parts = [
            None if part == "**" else re.compile(fnmatch.translate(part))
            for part in pattern.split("/")
        ]

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        return _matches(self._parts, name.split("/"))


def _matches(parts: Sequence[re.Pattern[str] | None], components: Sequence[str]) -> bool:
    if not parts or not components:
        return not parts and not components
    head, rest = parts[0], parts[1:]
    if head is None:
        return not rest or any(_matches(rest, components[i:]) for i in range(len(components)))
    return head.match(components[0]) is not None and _matches(rest, components[1:])
