"""Compaction of an output on a store: many small files become few large ones, while it is written.

An epoch stays what it is: its entry in the new manifest names rows of a large file instead of a
small file. So cursors stay valid, and readers see each row once, before, during and after it.

1. Put a record that lists the files to be replaced (`replaced`), under a random token.
2. Write the large files, below `compacted/<token>/`. Nothing of it counts yet.
3. Put one manifest with all epochs of a chunk of manifests. Its number is higher than that of every
   other manifest, so from now on it counts (`manifest`).
4. Delete the manifests that it replaces. After a crash in between both are there, and the new one
   counts.
5. Delete replaced files once their time is over.

Manifests that vanish while they are read were merged, or compacted by somebody else: begin again.
A crash leaves unnamed files behind, which a later compaction deletes. Of two compactions at once
with one number and one range, one puts the manifest, and the other stops. The newest epochs are
left alone: drivers look at their manifests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import SinkError
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.sinks.stored.manifest import (
    COMPACTED,
    EpochManifest,
    Manifest,
    ManifestName,
    OutputFile,
    encode_manifest,
)
from headrace.sinks.stored.manifests import LISTINGS_MAX, Manifests
from headrace.sinks.stored.replaced import RECORDS, ReplacedFiles, forget
from headrace.sinks.stored.upkeep import covered_names, sweep
from headrace.store.store import Store

TARGET_BYTES = 128 << 20
KEEP_S = 3600.0
NEWEST_EPOCHS = 16
CHUNK_BYTES_MAX = 16 << 20
"""How many bytes the manifests of a chunk have at most."""
FEWEST_FILES = 2
"""So many files must become one, for each large file that is written."""
_SUFFIXES = (".jsonl", ".parquet")


class CompactedOutput(NamedTuple):
    """What a compaction did."""

    before: int
    """How many files were replaced, those inside of manifests too."""
    after: int
    """How many files they became."""
    deleted: int
    """How many files were deleted whose time was over."""


class _Piece(NamedTuple):
    """A file of an epoch that is to become part of a large one."""

    place: int
    """Which entry of the manifests, and which of its files."""
    number: int
    epoch: int
    file: OutputFile
    data: bytes


class _Placed(NamedTuple):
    """Where a piece has come to lie."""

    piece: _Piece
    file: OutputFile


def compact_output(
    store: Store,
    *,
    target_bytes: int = TARGET_BYTES,
    keep_s: float = KEEP_S,
    newest: int = NEWEST_EPOCHS,
) -> CompactedOutput:
    """Compacts all but the newest epochs; replaced files stay for `keep_s` seconds."""
    before = after = 0
    missing: object = None
    for _ in range(LISTINGS_MAX):
        names = Manifests(store).names()
        strong = [name for name in names if not name.weak]
        if not strong:
            return CompactedOutput(0, 0, 0)
        highest = max(name.last for name in strong)
        rewrite = max(name.rewrite for name in names) + 1
        try:
            for chunk in _chunks(store, strong, highest - newest):
                replaced, made = _compact_chunk(store, chunk, rewrite, target_bytes, keep_s)
                before, after = before + replaced, after + made
        except FileNotFoundError as error:
            missing = error  # merged, or compacted by somebody else, just now: list again
            continue
        swept = sweep(store, 0, highest)
        return CompactedOutput(before, after, swept + forget(store))
    raise SinkError(
        f"{store.where()} cannot be compacted: {missing} is missing. Try again later; if it is "
        "missing then, restore it"
    )


def _chunks(
    store: Store, strong: Sequence[ManifestName], last: int
) -> Iterator[list[ManifestName]]:
    """Runs of neighbouring manifests, without those that another covers."""
    covered = set(covered_names(strong))
    run: list[ManifestName] = []
    size = 0
    for name in sorted(set(strong) - covered, key=lambda name: (name.first, name.last)):
        if name.last > last:
            break
        length = store.stat(name.name).size
        if run and (run[-1].last + 1 != name.first or size + length > CHUNK_BYTES_MAX):
            yield run
            run, size = [], 0
        run.append(name)
        size += length
    if run:
        yield run


def _compact_chunk(
    store: Store, chunk: list[ManifestName], rewrite: int, target: int, keep_s: float
) -> tuple[int, int]:
    """(files replaced, files made)."""
    manifests = [Manifests(store).read(name) for name in chunk]
    entries = [(each, manifest) for manifest in manifests for each in manifest.epochs]
    sizes = Counter[str]()
    for each, _ in entries:
        for file in each.files:
            sizes[file.place] += file.size  # of a compacted file each epoch knows its share
    small = [
        (place, index)
        for place, (each, _) in enumerate(entries)
        for index, file in enumerate(each.files)
        if not each.weak and _is_small(file, sizes[file.place], target)
    ]
    chosen = [entries[place][0].files[index] for place, index in small]
    count = len({file.place for file in chosen})
    total = sum(file.size for file in chosen)
    if count < FEWEST_FILES * (total // target + len({_home(file) for file in chosen})):
        return 0, 0
    token = store.system.token_hex(8)
    # 1. What is replaced stays for those who have read the old manifests.
    files = [f.name if f.first is None else f.place for f in chosen if f.offset is None]
    record = ReplacedFiles(store.system.wall_s(), keep_s, list(dict.fromkeys(files)))
    store.make_directory(RECORDS)
    store.write(f"{RECORDS}/{token}", msgspec.json.encode(record))
    # 2. The large files.
    writer = _Writer(store, token, target)
    for place, index in small:
        each, manifest = entries[place]
        file = each.files[index]
        data = manifest.bytes_of(file) if file.offset is not None else store.read(file.place)
        writer.add(_Piece(place, index, each.epoch, file, data))
    placed = writer.finish()
    if writer.made >= count:  # columns of different types: nothing would be gained
        for made in {each.file.place for each in placed}:
            store.delete(made)
        store.delete(f"{RECORDS}/{token}")
        return 0, 0
    # 3. The manifest.
    name = ManifestName(chunk[-1].last, chunk[-1].last - chunk[0].first + 1, rewrite=rewrite)
    data = encode_manifest(_rewritten(entries, placed))
    if not store.put_if_absent(name.name, data) and store.read(name.name) != data:
        raise SinkError(f"{store.where()} is being compacted by somebody else: try again later")
    # 4. What it replaces.
    for old in chunk:
        store.delete(old.name)
    return count, writer.made


def _is_small(file: OutputFile, size: int, target: int) -> bool:
    return file.name.endswith(_SUFFIXES) and 0 < size < target // 2


def _home(file: OutputFile) -> tuple[str, str]:
    """Files with one home can become one: the same partition, the same format."""
    name = file.name if file.first is None else file.name.partition("/")[2]
    return name.rpartition("/")[0], name[name.rindex(".") :]


def _rewritten(
    entries: Sequence[tuple[EpochManifest, Manifest]], placed: Sequence[_Placed]
) -> Manifest:
    new = {(each.piece.place, each.piece.number): each.file for each in placed}
    epochs: list[EpochManifest] = []
    tail: list[bytes] = []
    length = 0
    for place, (each, manifest) in enumerate(entries):
        files = []
        for index, file in enumerate(each.files):
            found = new.get((place, index), file)
            if found.offset is not None:
                data = manifest.bytes_of(file)
                found = msgspec.structs.replace(found, offset=length)
                tail.append(data)
                length += len(data)
            files.append(found)
        epochs.append(msgspec.structs.replace(each, files=files))
    return Manifest(epochs, b"".join(tail))


class _Writer:
    """Collects pieces of each home, and writes them as large files."""

    def __init__(self, store: Store, token: str, target: int) -> None:
        self._store, self._token, self._target = store, token, target
        self._open: dict[tuple[str, str], list[_Piece]] = {}
        self._sizes: dict[tuple[str, str], int] = {}
        self._tables: dict[str, pa.Table] = {}
        self._placed: list[_Placed] = []
        self.made = 0

    def add(self, piece: _Piece) -> None:
        home = _home(piece.file)
        self._open.setdefault(home, []).append(piece)
        self._sizes[home] = self._sizes.get(home, 0) + piece.file.size
        if self._sizes[home] >= self._target:
            self._flush(home)

    def finish(self) -> list[_Placed]:
        for home in list(self._open):
            self._flush(home)
        return self._placed

    def _flush(self, home: tuple[str, str]) -> None:
        pieces = self._open.pop(home)
        del self._sizes[home]
        if home[1] == ".jsonl":
            self._write(home, pieces, [self._lines(piece) for piece in pieces])
            return
        # Tables whose columns have the same types; each knows the types of those that it has.
        alike: list[tuple[dict[str, pa.DataType], list[tuple[_Piece, pa.Table]]]] = []
        for piece in pieces:
            table = self._table(piece)
            mine = dict(zip(table.schema.names, table.schema.types, strict=True))
            for types, run in alike:
                if all(types.get(name, kind) == kind for name, kind in mine.items()):
                    types |= mine
                    run.append((piece, table))
                    break
            else:
                alike.append((mine, [(piece, table)]))
        for _, run in alike:
            self._write_tables(home, run)
        self._tables = {}

    def _lines(self, piece: _Piece) -> tuple[bytes, int]:
        lines = piece.data.splitlines(keepends=True)
        if piece.file.first is not None:
            lines = lines[piece.file.first : piece.file.first + piece.file.rows]
        if lines and not lines[-1].endswith(b"\n"):
            lines[-1] += b"\n"
        return b"".join(lines), len(lines)

    def _table(self, piece: _Piece) -> pa.Table:
        file = piece.file
        if file.first is None:
            return pq.ParquetFile(pa.BufferReader(piece.data)).read()
        if file.name not in self._tables:
            self._tables[file.name] = pq.ParquetFile(pa.BufferReader(piece.data)).read()
        return self._tables[file.name].slice(file.first, file.rows)

    def _write_tables(self, home: tuple[str, str], run: Sequence[tuple[_Piece, pa.Table]]) -> None:
        table = pa.concat_tables([table for _, table in run], promote_options="default")
        out = pa.BufferOutputStream()
        pq.write_table(table, out, compression="zstd")
        counts = [(b"", table.num_rows) for _, table in run]
        self._write(home, [piece for piece, _ in run], counts, out.getvalue().to_pybytes())

    def _write(
        self,
        home: tuple[str, str],
        pieces: Sequence[_Piece],
        parts: Sequence[tuple[bytes, int]],
        data: bytes | None = None,
    ) -> None:
        data = b"".join(part for part, _ in parts) if data is None else data
        directory, suffix = home
        epoch = pieces[-1].epoch
        name = paths.content_name(epoch, "compacted", digest_of(data), suffix)
        name = "/".join(part for part in (self._token, directory, name) if part)
        total, first = sum(rows for _, rows in parts), 0
        self._store.make_directory(f"{COMPACTED}/{name}".rpartition("/")[0])
        self._store.write(f"{COMPACTED}/{name}", data)
        self.made += 1
        for piece, (_, rows) in zip(pieces, parts, strict=True):
            share = len(data) * rows // max(total, 1) if len(pieces) > 1 else len(data)
            file = OutputFile(name, share, rows, None, first, total)
            self._placed.append(_Placed(piece, file))
            first += rows
