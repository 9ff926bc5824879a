"""`read_output`: what a file sink has published, whole epochs in order, from any place.

On a URL epochs are manifests (`manifest`); on a filesystem they are directories `epoch=…`. A reader
keeps a cursor: the last epoch that it has read. Given back as `after=`, only newer epochs are read,
each once, whatever the sink does in the meantime.

Weak deliveries (at-least-once) are shown with the epoch that they belong to, once that epoch is
committed. They may repeat its rows; `OutputEpoch.is_weak` tells them apart.
"""

from __future__ import annotations

import base64
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import xxhash

from headrace.errors import SourceError
from headrace.sinks.grouped.groups import EpochGroups, held_files, read_rows
from headrace.sinks.grouped.merging import RowsOf
from headrace.sinks.high_water import highest_marker
from headrace.sinks.stored.decoding import Content, as_table, part_of
from headrace.sinks.stored.manifest import EpochManifest, Manifest, OutputFile
from headrace.sinks.stored.manifests import LISTINGS_MAX, Manifests
from headrace.sinks.stored.sink import owner_of
from headrace.store.disk import DiskStore
from headrace.store.location import filesystem_path, open_store
from headrace.store.places import is_stored, split_url
from headrace.store.store import Store
from headrace.system import REAL

_Reads = dict[str, Callable[[], bytes | pa.Buffer]]
_DIRECTORY = re.compile(r"epoch=(\d{12})(?:-weak-[0-9a-f]+)?")


class _File(NamedTuple):
    """A file of an epoch."""

    name: str
    """Its name with the directories of its partition."""
    place: str | None
    """Its URL or path; None if its rows stand in a manifest."""
    read: Callable[[], bytes | pa.Buffer]
    first: int | None = None
    """Only `rows` rows of a compacted file are meant, from this one on."""
    rows: int = 0
    rows_in_file: int = 0


class OutputEpoch:
    """One epoch that a sink has published."""

    def __init__(self, number: int, files: Sequence[_File], *, is_weak: bool) -> None:
        self.number = number
        self.is_weak = is_weak
        """Whether it was shown before its commit: its rows may come again (at-least-once)."""
        self._files = files

    def __repr__(self) -> str:
        return f"<epoch {self.number}{' (weak)' if self.is_weak else ''}: {len(self._files)} files>"

    def table(self) -> pa.Table:
        """Its rows."""
        return as_table(self._contents())

    def files(self, *, copies_in: str | os.PathLike[str] | None = None) -> list[str]:
        """Where its files lie; see `Output.files`."""
        return _places(self._files, copies_in)

    def _contents(self) -> list[Content]:
        found = []
        for file in self._files:
            try:
                found.append(Content(file.name, file.read(), file.first, file.rows))
            except FileNotFoundError:
                if not self.is_weak:  # what a late task shows weakly may already be swept
                    raise SourceError(
                        f"{file.place} is missing, though epoch {self.number} names it: restore it"
                    ) from None
        return found


class Output:
    """Epochs that a sink has published, in order."""

    def __init__(
        self, epochs: Sequence[OutputEpoch], cursor: str, schema: pa.Schema | None = None
    ) -> None:
        self.epochs = tuple(epochs)
        self.cursor = cursor
        """Give it back as `after=` to read only what is published later."""
        self._schema = schema

    def __iter__(self) -> Iterator[OutputEpoch]:
        return iter(self.epochs)

    def __len__(self) -> int:
        return len(self.epochs)

    def table(self) -> pa.Table:
        """All rows, in one table in memory."""
        contents = [each for epoch in self.epochs for each in epoch._contents()]
        return as_table(contents, self._schema)

    def files(self, *, copies_in: str | os.PathLike[str] | None = None) -> list[str]:
        """Where the files lie, as URLs or paths, for a system that reads them itself.

        On a URL few rows may stand in manifests instead of files. They are copied into files in
        the directory `copies_in`; without one, such rows are an error, so that none is lost.
        """
        return _places([file for epoch in self.epochs for file in epoch._files], copies_in)


def read_output(place: str | os.PathLike[str] | Store, *, after: str | None = None) -> Output:
    """What `sinks.jsonl`, `csv` or `parquet` has published at a path, a URL or in a store.

    `after` is the `cursor` of an earlier reading: only newer epochs are read.

        output = headrace.read_output("s3://bucket/out")
        table = output.table()                                       # a pyarrow.Table
        newer = headrace.read_output("s3://bucket/out", after=output.cursor)
    """
    if isinstance(place, Store):
        return _read_store(place, place.where(), after)
    text = os.fspath(place)
    if is_stored(text):
        root, path, options = split_url(place, "the place of an output")
        shown = f"{root}/{path.strip('/')}".rstrip("/")
        return _read_store(open_store(f"{shown}{options}"), shown, after)
    return _read_directory(Path(filesystem_path(text) or text).expanduser().absolute(), after)


def _read_store(store: Store, shown: str, after: str | None) -> Output:
    owner = owner_of(store)
    begin = _epoch_after(after, owner, shown)
    found = Manifests(store).since(begin)
    epochs = []
    reads: _Reads = {}
    for each, manifest, is_weak in found:
        files = [_stored_file(store, shown, file, manifest, reads) for file in each.files]
        epochs.append(OutputEpoch(each.epoch, files, is_weak=is_weak))
    last = max((epoch.number for epoch in epochs), default=begin)
    return Output(epochs, f"{owner}/{last}", _schema_of([each for each, _, _ in found]))


def _stored_file(
    store: Store, shown: str, file: OutputFile, manifest: Manifest, reads: _Reads
) -> _File:
    if file.offset is not None:
        return _File(file.name, None, lambda: manifest.bytes_of(file))
    place = f"{shown}/{file.place}"
    read: Callable[[], bytes | pa.Buffer] = partial(store.map, file.place)
    if file.first is not None:  # a merged file, of which several epochs have rows: read it once
        read = reads.setdefault(file.place, cache(read))
    return _File(file.name, place, read, file.first, file.rows, file.rows_in_file)


def _read_directory(path: Path, after: str | None) -> Output:
    store = DiskStore(path)
    owner = owner_of(store)
    begin = _epoch_after(after, owner, str(path))
    for _ in range(LISTINGS_MAX):
        try:
            epochs, closed = _list_directory(path, store, begin)
        except FileNotFoundError:
            continue  # what was held has become a group just now
        return Output(epochs, f"{owner}/{closed}")
    raise SourceError(f"{path} has changed {LISTINGS_MAX} times while it was listed: try again")


def _list_directory(path: Path, store: DiskStore, begin: int) -> tuple[list[OutputEpoch], int]:
    # The mark rises after an epoch is visible: read it first, then all epochs up to it are listed.
    closed = max(begin, highest_marker(store.below("_high_water")))
    # What is held is deleted after its group has appeared: look at it first. It may vanish while
    # it is used, so its rows are taken now; there are few.
    epochs: dict[tuple[int, bool, str], OutputEpoch] = {}
    for number in EpochGroups(path, REAL).held():
        if number > begin:
            files = [
                _File(f"{home}/{name}" if home else name, None, partial(bytes, data))
                for home, name, data in held_files(path, number, REAL)
            ]
            epochs[number, True, ""] = OutputEpoch(number, files, is_weak=False)
    reads: _Reads = {}
    for name in store.list(""):
        if not (directory := _DIRECTORY.fullmatch(name)):
            continue
        number, is_strong = int(directory[1]), "-weak-" not in name
        if number <= begin:
            continue
        if is_strong and (group := read_rows(path, number)) is not None:
            for epoch, files in _grouped(path / name, group, reads).items():
                if epoch > begin:
                    epochs[epoch, True, ""] = OutputEpoch(epoch, files, is_weak=False)
        else:
            key = (number, is_strong, "" if is_strong else name)
            epochs[key] = OutputEpoch(number, _local_files(path / name), is_weak=not is_strong)
    closed = max([closed, *(number for number, is_strong, _ in epochs if is_strong)])
    return [epochs[key] for key in sorted(epochs) if key[0] <= closed], closed


def _grouped(directory: Path, group: Sequence[RowsOf], reads: _Reads) -> dict[int, list[_File]]:
    """The files of every epoch in a group; a file with rows of several epochs is read once."""
    found: dict[int, list[_File]] = {}
    for rows in group:
        place = str(directory / rows.name)
        read = reads.setdefault(place, cache((directory / rows.name).read_bytes))
        name = f"{directory.name}/{rows.name}"  # names tell decoded files apart
        file = _File(name, place, read, rows.first, rows.rows, rows.rows_in_file)
        found.setdefault(rows.epoch, []).append(file)
    return found


def _local_files(directory: Path) -> list[_File]:
    found = []
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_file() and not any(part[0] in "._" for part in name.split("/")):
            found.append(_File(name, str(path), path.read_bytes))
    return found


def _epoch_after(after: str | None, owner: str | None, shown: str) -> int:
    if owner is None:
        raise SourceError(
            f"there is no output of a file sink at {shown}: correct the place, or wait until the "
            "pipeline has opened its sink"
        )
    if after is None:
        return 0
    checkpoint, slash, epoch = after.rpartition("/")
    if not slash or not epoch.isdigit():
        raise SourceError(f"after={after!r} is not the cursor of an earlier reading")
    if checkpoint != owner:
        raise SourceError(
            f"after={after!r} comes from the output of the checkpoint {checkpoint}, but {shown} "
            f"belongs to {owner}: read it from the beginning"
        )
    return int(epoch)


def _schema_of(manifests: Sequence[EpochManifest]) -> pa.Schema | None:
    """The schema given to the sink, as the last epoch says."""
    if not manifests or not manifests[-1].schema:
        return None
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(manifests[-1].schema)))


def _places(files: Sequence[_File], copies_in: str | os.PathLike[str] | None) -> list[str]:
    rows = Counter[str | None]()
    for file in files:
        rows[file.place] += file.rows
    places: list[str] = []
    for file in files:
        is_whole = file.first is None or rows[file.place] == file.rows_in_file
        if file.place is not None and is_whole:
            if file.place not in places:
                places.append(file.place)
        elif copies_in is None:
            raise SourceError(
                "some rows stand in manifests, or beside rows of other epochs, and not in files of "
                "their own: name a directory for copies of them (copies_in=), or use table()"
            )
        else:
            places.append(_copied(file, Path(copies_in)))
    return places


def _copied(file: _File, directory: Path) -> str:
    """Writes a file of a manifest to a directory; its name contains its digest."""
    data = bytes(file.read())
    if file.first is not None:
        data = part_of(Content(file.name, data, file.first, file.rows))
    home, _, name = file.name.rpartition("/")
    path = directory.absolute() / home / f"{xxhash.xxh3_64_hexdigest(data)}-{name}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return str(path)
