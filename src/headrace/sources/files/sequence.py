"""One split that runs through many files, one after the other.

An *extent* is a file's place in the split: the position of its first record and how
many positions it has. A range names the *pieces* of files that it covers, each with
its fingerprint, in `Range.fingerprint`: a task reads the files named there and needs to know
no other file.

Invariants:
- Extents never overlap and never move; positions between two of them belong to no record.
- A range ends where a piece ends, and a piece ends where a record ends.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

from headrace.model.source import Range, Reading, Seen, Source, Timing
from headrace.sources.files.format import FileFormat, join_readings
from headrace.sources.files.input_file import InputFile, LocalFile, moved_error
from headrace.sources.files.stored_file import StoredFile
from headrace.store.store import Store

PIECES_PER_RANGE_MAX = 256


class Extent(msgspec.Struct, frozen=True, array_like=True):
    """A file's place in the split."""

    name: str
    base: int
    length: int

    @property
    def end(self) -> int:
        """The position after the last of the file."""
        return self.base + self.length


class FilePiece(msgspec.Struct, frozen=True, array_like=True):
    """A part of one file, by positions in that file; `base` is the file's in the split."""

    name: str
    base: int
    start: int
    end: int
    fingerprint: str


encode_extents = msgspec.json.Encoder().encode
decode_extents = msgspec.json.Decoder(list[Extent]).decode
_encode_pieces = msgspec.json.Encoder().encode
_decode_pieces = msgspec.json.Decoder(list[FilePiece]).decode


class SequenceSource(Source):
    """Files read one after the other as a single split."""

    split: str

    def __init__(self, format: FileFormat, timing: Timing) -> None:
        self.format = format
        self.timing = timing
        self.root = ""
        """The directory of the files, on a filesystem."""
        self.store: Store | None = None
        """The store of the files, if they do not lie on a filesystem."""
        self.extents: list[Extent] = []

    def __getstate__(self) -> dict[str, Any]:
        # Tasks read what a range names; the pickled bytes must not change when files are added.
        return {**self.__dict__, "extents": []}

    @abstractmethod
    def refresh(self) -> bool:
        """Brings `extents` up to date; true when no extent will ever be added."""

    def splits(self) -> Sequence[str]:
        return (self.split,)

    def plan(self, split: str, start: int, records: int) -> Range | None:
        complete = self.refresh()
        index = self.index_of(start)
        pieces: list[FilePiece] = []
        about, end = 0, start
        while index < len(self.extents) and len(pieces) < PIECES_PER_RANGE_MAX:
            extent = self.extents[index]
            index += 1
            if extent.length:
                piece, found = self._piece(extent, max(0, end - extent.base), records - about)
                pieces.append(piece)
                about, end = about + found, extent.base + piece.end
                if about >= records or end < extent.end:
                    break
        last = complete and (not self.extents or end >= self.extents[-1].end)
        if not pieces:
            return Range(start, start, 0, last=True) if last else None
        return _range(start, end, about, last, pieces)

    def reaches(self, split: str) -> int | None:
        return self.extents[-1].end if self.extents else 0

    def read(self, split: str, range: Range) -> Reading:
        return self._read(split, range, None)

    def read_columns(self, split: str, range: Range, needed: frozenset[str]) -> Reading:
        return self._read(split, range, needed)

    def _read(self, split: str, range: Range, needed: frozenset[str] | None) -> Reading:
        readings = []
        for piece in _pieces(range):
            reading = self.format.seen(
                self._file(piece), piece.name, piece.start, piece.end, piece.fingerprint, needed
            )
            reading.seen = {piece.name: reading.seen[""]}
            reading.positions = reading.positions + piece.base
            for index, rejected in enumerate(reading.rejected):
                position = rejected.position + piece.base
                reading.rejected[index] = msgspec.structs.replace(rejected, position=position)
            readings.append(reading)
        whole = join_readings(readings)
        whole.seen = self.remembered(split, range, whole.seen)
        return whole

    def remembered(self, split: str, range: Range, seen: dict[str, Seen]) -> dict[str, Seen]:
        """What the ledger records of a range that was read; nothing for files of our own spool."""
        return {}

    def parallel(self, split: str, range: Range, parts: int) -> Sequence[Range]:
        pieces = _pieces(range)
        weights = [self.format.weight(self._file(p), p.start, p.end) for p in pieces]
        total = sum(weights)
        if parts < 2 or total < self.format.cut_from:
            return (range,)
        groups: list[list[FilePiece]] = [[]]
        filled = 0.0
        for piece, weight in zip(pieces, weights):
            for part, share in self._cut(piece, weight, parts, total):
                # A piece belongs to the group in which its middle falls.
                if (filled + share / 2) * parts >= total * len(groups) and groups[-1]:
                    groups.append([])
                groups[-1].append(part)
                filled += share
        return _grouped(range, groups)

    def index_of(self, position: int) -> int:
        """The first extent with a position at or after `position`."""
        return bisect_right(self.extents, position, key=lambda extent: extent.end)

    def _file(self, place: Extent | FilePiece) -> InputFile:
        if self.store is not None:
            return StoredFile(self.store, place.name)
        return LocalFile(os.path.join(self.root, place.name))

    def _piece(self, extent: Extent, start: int, records: int) -> tuple[FilePiece, int]:
        file = self._file(extent)
        known = self.format.lengths(file)
        if extent.length not in known:
            raise moved_error(file)
        end, about = self.format.next_end(file, start, max(1, records))
        end = extent.length if end == known[0] else end
        mark = self.format.fingerprint(file, start, end)
        return FilePiece(extent.name, extent.base, start, end, mark), about

    def _cut(
        self, piece: FilePiece, weight: int, parts: int, total: int
    ) -> list[tuple[FilePiece, float]]:
        """Cuts a piece so that no part is much more than a task's share; (part, weight) pairs."""
        file = self._file(piece)
        wanted = round(weight * parts / total)
        cuts = self.format.cuts(file, piece.start, piece.end, wanted) if wanted > 1 else []
        bounds = [piece.start, *cuts, piece.end]
        length = piece.end - piece.start
        return [
            (
                FilePiece(piece.name, piece.base, a, b, self.format.fingerprint(file, a, b)),
                weight * (b - a) / length,
            )
            for a, b in pairwise(bounds)
        ]


def _grouped(range: Range, groups: list[list[FilePiece]]) -> tuple[Range, ...]:
    lengths = [sum(piece.end - piece.start for piece in group) for group in groups]
    ranges = []
    start = range.start
    for group, length in zip(groups, lengths):
        is_last = group is groups[-1]
        end = range.end if is_last else group[-1].base + group[-1].end
        about = max(1, range.records * length // sum(lengths))
        ranges.append(_range(start, end, about, range.last and is_last, group))
        start = end
    return tuple(ranges)


def _range(start: int, end: int, records: int, last: bool, pieces: list[FilePiece]) -> Range:
    return Range(start, end, records, last, _encode_pieces(pieces).decode())


def _pieces(range: Range) -> list[FilePiece]:
    return _decode_pieces(range.fingerprint) if range.fingerprint else []
