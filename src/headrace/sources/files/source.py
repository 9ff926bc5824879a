"""Files as splits: a fixed set, or a directory that keeps growing.

Every file is a split of its own, named by its path below a common base. A file must never
change once it exists: in a watched directory it must appear complete, by a rename. The ledger
records what was read of it (`Seen`), and a file that differs is an error. An empty file does
not count yet: nothing says that it is complete. `ordered_by_name=True` makes one split of all
files instead (see `sequence`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from headrace.errors import HeadraceError, InvalidPipeline, SourceError
from headrace.model.source import Change, Range, Reading, Seen, Source, Timing, Workspace
from headrace.model.values.time import instant
from headrace.sources.files.file_set import FileSet, Listing, Paths, checked_paths
from headrace.sources.files.format import FileFormat
from headrace.sources.files.input_file import InputFile, changed_error, moved_error
from headrace.sources.files.local_set import LocalFileSet
from headrace.sources.files.sequence import (
    Extent,
    FilePiece,
    SequenceSource,
    decode_extents,
    encode_extents,
)
from headrace.sources.files.stored_set import StoredFileSet
from headrace.sources.options import TimingOptions
from headrace.store.places import is_stored
from headrace.store.store import Store

_LAYOUT = "layout"


def file_source(
    kind: str,
    format: FileFormat,
    paths: Paths,
    *,
    watch: bool,
    ordered_by_name: bool,
    timing: TimingOptions,
) -> Source:
    """A source over files of one format."""
    files = _file_set(paths, kind, watch=watch)
    chosen = OrderedFileSource if ordered_by_name else FileSource
    return chosen(kind, format, files, Timing(**timing))


def _file_set(paths: Paths, kind: str, *, watch: bool) -> FileSet:
    if isinstance(paths, Store):
        return StoredFileSet(paths, kind=kind, watch=watch)
    given = checked_paths(paths, kind)
    urls = [path for path in given if is_stored(path)]
    if not urls:
        return LocalFileSet(tuple(os.fspath(path) for path in given), watch=watch)
    if len(urls) < len(given):
        raise InvalidPipeline(
            f"sources.{kind} reads paths or URLs, not both in one list: read them as two streams"
        )
    return StoredFileSet(given, kind=kind, watch=watch)


class FileSource(Source):
    """One split per file."""

    def __init__(self, kind: str, format: FileFormat, files: FileSet, timing: Timing) -> None:
        self.kind = kind
        self.format = format
        self.files = files
        self.timing = timing
        self.bounded = not files.watch
        self._names: list[str] = []
        """The names of the files of a fixed set that are not finished."""
        self._listing: Listing | None = None
        self._finished: set[str] = set()
        """The paths of finished files, which a listing skips."""
        self._lengths: dict[str, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Tasks do not need what the driver has listed, and the pickled bytes must stay the
        # same while a watched directory grows.
        fresh: dict[str, Any] = {"_names": [], "_listing": None, "_finished": set(), "_lengths": {}}
        return {**self.__dict__, **fresh}

    def prepare(self, workspace: Workspace) -> None:
        self._finished = set()
        self._names = self._filled(self.files.names())
        self._listing = Listing(self.files) if self.files.watch else None

    def look(self, workspace: Workspace) -> None:
        """Does nothing: a range names its file, so nothing needs to be listed."""

    def splits(self) -> Sequence[str]:
        if self._listing is None:
            return self._names
        return self._filled(self._listing.look(self._finished))

    def caught_up(self) -> bool:
        return self._listing is None or self._listing.is_whole

    def finished(self, splits: Iterable[str]) -> None:
        ended = set(splits)
        if ended:
            self._finished.update(self.files.path(split) for split in ended)
            self._names = [name for name in self._names if name not in ended]
            for split in ended:
                self._lengths.pop(split, None)

    def _filled(self, names: list[str]) -> list[str]:
        """The files that are not empty; a fixed set also counts those in `Timing.expected`."""
        expected = () if self.files.watch else self.timing.expected
        return [name for name in names if self.files.file(name).has_bytes() or name in expected]

    def columns(self) -> Sequence[str] | None:
        return first_columns(self.format, self.files)

    def parts(self) -> Iterable[tuple[str, str]]:
        return ((name, "") for name in self.files.names())

    def compare(self, split: str, name: str, seen: Seen, *, closely: bool) -> Seen | Change | None:
        return self.format.compare(self.files.file(split), seen, closely=closely)

    def accept(self, split: str, name: str, seen: Seen) -> tuple[int, Seen]:
        now = self.format.accepted(self.files.file(split), seen)
        self._lengths.pop(split, None)
        return now.read, now

    def plan(self, split: str, start: int, records: int) -> Range | None:
        file = self.files.file(split)
        length = self._length(split, file)
        if start > length:
            raise changed_error(file)
        if start == length:
            return Range(start, start, 0, last=True, fingerprint=self._mark(file, start, start))
        end, about = self.format.next_end(file, start, max(1, records))
        return Range(start, end, about, end == length, self._mark(file, start, end))

    def reaches(self, split: str) -> int | None:
        return self._lengths.get(split)

    def read(self, split: str, range: Range) -> Reading:
        file = self.files.file(split)
        return self.format.seen(file, split, range.start, range.end, range.fingerprint)

    def read_columns(self, split: str, range: Range, needed: frozenset[str]) -> Reading:
        file = self.files.file(split)
        return self.format.seen(file, split, range.start, range.end, range.fingerprint, needed)

    def parallel(self, split: str, range: Range, parts: int) -> Sequence[Range]:
        file = self.files.file(split)
        weight = self.format.weight(file, range.start, range.end)
        if parts < 2 or range.start >= range.end or weight < self.format.cut_from:
            return (range,)
        cuts = self.format.cuts(file, range.start, range.end, parts)
        bounds = [range.start, *cuts, range.end]
        return tuple(
            Range(
                start,
                end,
                max(1, range.records * (end - start) // (range.end - range.start)),
                range.last and end == range.end,
                self._mark(file, start, end),
            )
            for start, end in pairwise(bounds)
        )

    def describe(self) -> str:
        return f"{self.kind}({self.files})"

    def _mark(self, file: InputFile, start: int, end: int) -> str:
        return self.format.fingerprint(file, start, end)

    def _length(self, split: str, file: InputFile) -> int:
        length = self.format.length(file)
        if self._lengths.setdefault(split, length) != length:
            raise changed_error(file)
        return length


def first_columns(format: FileFormat, files: FileSet) -> Sequence[str] | None:
    """The columns of the first file; None where they are known only after reading."""
    try:
        names = files.names()
        return format.columns_of(files.file(names[0])) if names else None
    except (HeadraceError, OSError):
        return None  # the run will get the same error, with more context


class OrderedFileSource(SequenceSource):
    """All files as one split, in the order of their names.

    The layout (which file lies at which position) is written when a file is first seen, so that
    a restart finds the same layout. In a watched directory, files found later come after those
    found before, whatever their names.
    """

    split = "files"

    def __init__(self, kind: str, format: FileFormat, files: FileSet, timing: Timing) -> None:
        super().__init__(format, timing)
        self.kind = kind
        self.files = files
        self.bounded = not files.watch
        self._store: Store | None = None
        self._pages = 0
        self._laid_out: set[str] = set()
        """The paths of the files that have a place in the layout."""
        self._listed_at = float("-inf")
        self._is_listed = True
        """Whether the last call of `splits` has listed the files."""

    def __getstate__(self) -> dict[str, Any]:
        fresh: dict[str, Any] = {"_pages": 0, "_laid_out": set(), "_is_listed": True}
        return {**super().__getstate__(), **fresh, "_listed_at": float("-inf")}

    def prepare(self, workspace: Workspace) -> None:
        self._store = workspace.store
        self._store.make_directory(_LAYOUT)
        self.extents = []
        self._pages = 0
        self._laid_out = set()
        # List the names first: this tells a missing directory from an empty one.
        names = self.files.names()
        self.root = self.files.base
        self._load()
        unknown = [n for n in self._filled(names) if self.files.path(n) not in self._laid_out]
        if unknown and self._pages and self.bounded:
            raise SourceError(
                f"{self.describe()}: {unknown[0]} was not there, or empty, when this checkpoint "
                "was started, and a fixed set read by name cannot grow: remove it, use "
                "watch=True, or start a new checkpoint"
            )
        self._append(unknown)
        if self.bounded and not self._pages and self._store.put_if_absent(_page_name(0), b"[]"):
            self._pages = 1  # nothing to read, now or later

    def look(self, workspace: Workspace) -> None:
        self._store = workspace.store
        self.root = self.files.base
        self._load()

    def columns(self) -> Sequence[str] | None:
        return first_columns(self.format, self.files)

    def refresh(self) -> bool:
        return self.bounded

    def splits(self) -> Sequence[str]:
        if not self.bounded:
            began = time.monotonic()
            self._is_listed = began - self._listed_at >= self.files.look_every_s
            if self._is_listed:
                self._append(self._filled(self.files.names(self._laid_out)))
                self._listed_at = began
        return (self.split,)

    def caught_up(self) -> bool:
        return self._is_listed

    def remembered(self, split: str, range: Range, seen: dict[str, Seen]) -> dict[str, Seen]:
        return seen

    def parts(self) -> Iterable[tuple[str, str]]:
        return ((self.split, extent.name) for extent in self.extents)

    def compare(self, split: str, name: str, seen: Seen, *, closely: bool) -> Seen | Change | None:
        return self.format.compare(self.files.file(name), seen, closely=closely)

    def accept(self, split: str, name: str, seen: Seen) -> tuple[int, Seen]:
        file = self.files.file(name)
        now = self.format.accepted(file, seen)
        extent = next(extent for extent in self.extents if extent.name == name)
        if not seen.whole and extent.length not in self.format.lengths(file):
            raise moved_error(file)
        return 0, now

    def _file(self, place: Extent | FilePiece) -> InputFile:
        return self.files.file(place.name)

    def _filled(self, names: list[str]) -> list[str]:
        return [name for name in names if self.files.file(name).has_bytes()]

    def low_watermark(self, split: str, position: int) -> int | None:
        """The low watermark where the file at `position` starts.

        Tasks call this too, and two attempts must get the same answer. So the end of a file counts
        as the beginning of the next one only where the set is fixed: in a watched directory the
        answer would depend on whether the next file has already appeared.
        """
        starts = self.timing.starts
        if starts is None:
            return None
        if not self.extents or position > self.extents[-1].end:
            self._load()
        if not self.extents:
            return None
        at = position if self.bounded else max(0, position - 1)
        name = self.extents[min(self.index_of(at), len(self.extents) - 1)].name
        return instant(starts(name), what=f"starts({name!r})")

    def describe(self) -> str:
        return f"{self.kind}({self.files}, by name)"

    def _append(self, names: list[str]) -> None:
        """Adds new files to the layout, durably, before any position in them is planned."""
        while True:
            base = self.extents[-1].end if self.extents else 0
            page: list[Extent] = []
            for name in names:
                if self.files.path(name) not in self._laid_out:
                    page.append(Extent(name, base, self.format.length(self.files.file(name))))
                    base = page[-1].end
            if not page:
                return
            if self._workspace().put_if_absent(_page_name(self._pages), encode_extents(page)):
                self._lay_out(page)
                return
            self._load()  # Another driver was faster: its layout counts.

    def _load(self) -> None:
        while True:
            try:
                page = decode_extents(self._workspace().read(_page_name(self._pages)))
            except FileNotFoundError:
                return
            self._lay_out(page)

    def _workspace(self) -> Store:
        if self._store is None:
            raise SourceError(f"{self.describe()} was used before it was prepared")
        return self._store

    def _lay_out(self, page: list[Extent]) -> None:
        self.extents.extend(page)
        self._laid_out.update(self.files.path(extent.name) for extent in page)
        self._pages += 1


def _page_name(number: int) -> str:
    return f"{_LAYOUT}/{number:08d}"
