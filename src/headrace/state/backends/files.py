"""`files`: the cells of a key are one file. Simple, slow, and open to every tool.

    cells/<checkpoint>-files/
      RUN                                which driver writes here
      000001-000000000000/               a place: generation and floor
        applied-000000000007             the mark; the highest counts. It holds a sum over all keys
        cells/Count/3f/a0/               keys whose hash begins with 3fa0
          3fa0…-9c1e….000000000007.5d…   a version of a key: hash and digest of the key, highest
                                         stamp, digest of the file

A file holds all cells of a key, each with its stamp. A writer reads the versions that are there,
joins them cell by cell, the higher stamp counts, and writes a new version; then it removes older
ones. So two writers at once need no lock: where neither has seen the other's version, both stay,
and readers join them. Each file is synced before the mark is raised.

A purge makes a new place without the tombstones. It counts once a commit has named it; a late
writer goes on in the old place, which is removed afterwards (O3).

A version is removed by the second write after it, because a listing of a directory may miss names
that are added and removed meanwhile.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce

import msgspec
import xxhash

from headrace.errors import CorruptCheckpoint, StoreError
from headrace.log import paths
from headrace.model.values.keys import hash_key
from headrace.plan.state.choice import StateChoice
from headrace.state.backend import AppliedCell, Hashes, StateBackend, StoreMarks
from headrace.state.backends.directory import GONE, StateDirectory
from headrace.state.backends.key_files import (
    DEAD,
    Cells,
    KeyFile,
    Version,
    joined,
    parsed,
    stamp_before,
    stamps_after,
    stem_of,
)
from headrace.state.backends.key_sums import KeySum, decoded, difference, name_of
from headrace.state.segment import ENTRY, FIELD, Cell
from headrace.store import files
from headrace.store.store import Store

_APPLIED = "applied-"
_CELLS = "cells"
_KEPT = 2
"""How many versions of a key, and how many marks, are kept."""
_LOOKS_MAX = 10
_COUNTS_MAX = 3
"""How often keys are counted while epochs are applied beside it."""


class FilesBackend(StateBackend):
    """One file per key, below the checkpoint."""

    name = "files"

    def __init__(self, directory: StateDirectory, purge_share: float = 0.25) -> None:
        """`purge_share`: a purge is worth it if so many of all keys have tombstones."""
        self._directory, self._system = directory, directory.system
        self._purge_share = purge_share
        self._place = ""
        self._generation = 0
        self._made: set[str] = set()
        self._changed: defaultdict[int, dict[int, int]] = defaultdict(dict)
        """Epoch that has no mark yet -> key that it has written -> the key's stamp before."""

    @staticmethod
    def open(choice: StateChoice, store: Store, checkpoint: str) -> FilesBackend:
        """The files of a checkpoint."""
        return FilesBackend(StateDirectory.of(choice, store, checkpoint))

    # Places ---------------------------------------------------------------

    def lead(self, generation: int, place: str) -> None:
        self._generation = generation
        if place and not self._system.files.is_directory(self._directory.at(place)):
            known = [name for name in self._directory.list() if name.replace("-", "").isdigit()]
            place = max(known, default="")
        self._place = place or f"{generation:06d}-{0:012d}"
        self._directory.make(self._place)
        self._directory.begin_run()

    def place(self) -> str:
        return self._place

    def follow(self, place: str) -> None:
        self._place = place

    def tidy(self, place: str) -> None:
        """Removes places of this and of earlier generations that no commit names any more."""
        for other in self._directory.list():
            generation = other.partition("-")[0]
            if other != place and generation.isdigit() and int(generation) <= self._generation:
                self._directory.discard(other)

    # Marks ----------------------------------------------------------------

    def marks(self) -> StoreMarks:
        if not self._place:
            return StoreMarks(0, 0, self._directory.run())
        names = self._directory.list(self._place)
        applied = [int(n.removeprefix(_APPLIED)) for n in names if n.startswith(_APPLIED)]
        if not names and not self._system.files.is_directory(self._directory.at(self._place)):
            return StoreMarks(0, 0, GONE)
        return StoreMarks(max(applied, default=0), self._floor(), self._directory.run())

    def _floor(self) -> int:
        return int(self._place.rpartition("-")[2])

    def raise_applied(self, epoch: int, run: str) -> bool:
        marks = self.marks()
        if marks.run != run:
            return False
        if epoch > marks.applied:
            self._mark(self._place, epoch, self._sum_after(marks.applied, epoch))
        for marked in [each for each in self._changed if each <= epoch]:
            del self._changed[marked]
        return True

    def _sum_after(self, applied: int, epoch: int) -> KeySum:
        """The keys after an epoch: by the last mark and what was written since, or counted."""
        try:
            known = self._said(applied) if applied else KeySum()
        except FileNotFoundError:  # another driver has raised it meanwhile
            known = None
        since = range(applied + 1, epoch + 1)
        if known is None or any(each not in self._changed for each in since):
            return self._count(self._place, epoch)
        return reduce(lambda keys, each: keys.after(each, self._changed[each]), since, known)

    def _said(self, epoch: int) -> KeySum | None:
        """What the mark of an epoch says of its keys; None if they were not counted."""
        path = self._directory.at(self._place, f"{_APPLIED}{epoch:012d}")
        return decoded(self._system.files.read(path), path)

    def _mark(self, place: str, epoch: int, keys: KeySum) -> None:
        path = self._directory.at(place, f"{_APPLIED}{epoch:012d}")
        files.put_if_absent(path, keys.encoded(), self._system)
        known = [n for n in self._directory.list(place) if n.startswith(_APPLIED)]
        for name in known[:-_KEPT]:
            files.remove(self._directory.at(place, name), self._system)

    def lost(self) -> str | None:
        for _ in range(_COUNTS_MAX):
            before = self.marks()
            if not before.applied:
                return ""
            try:
                if (said := self._said(before.applied)) is None:
                    return None
                found = self._count(self._place, before.applied)
            except FileNotFoundError:
                continue
            if self.marks() == before:
                return difference(said, found, before.applied)
        return None

    def _count(self, place: str, epoch: int) -> KeySum:
        """The keys that a place had after an epoch, if at most the next one is being written."""
        found = KeySum()
        for safe in self._directory.list(place, _CELLS):
            for directory, names in self._buckets(place, paths.unsafe(safe)):
                stamps = stamps_after(epoch, names, partial(self._before, directory))
                for stem, stamp in stamps.items():
                    found = found.with_key(name_of(safe, stem), stamp)
        return found

    def _before(self, directory: str, name: str) -> int:
        """The highest stamp that a key had before this version of it."""
        return self._read(directory, name).before

    def sync(self) -> None:
        """Nothing to do: every file was synced when it was written."""

    # Cells ----------------------------------------------------------------

    def write(self, epoch: int, cells: Iterable[tuple[str, Cell]]) -> None:
        changed: defaultdict[tuple[str, bytes], Cells] = defaultdict(dict)
        for computation, cell in cells:
            value = None if cell.tombstone else cell.value
            made = AppliedCell(epoch, value, cell.expires, cell.version)
            changed[computation, cell.key][cell.kind, cell.field, cell.entry] = made
        floor, written = self._floor(), self._changed[epoch]
        for (computation, key), mine in changed.items():
            known, versions = self._load(computation, key)
            now = dict(known)
            for place, cell_now in mine.items():
                before = known.get(place)
                if epoch > (floor if before is None else before.stamp):
                    now[place] = cell_now
            last = stamp_before(versions, epoch)
            if now != known:
                self._store_key(self._place, computation, key, now, versions, last)
            if any(c.stamp == epoch for c in now.values()):  # also if an earlier try has written it
                written[name_of(paths.safe(computation), stem_of(key))] = last

    def drop(self, computation: str, epoch: int, keys: Sequence[bytes] | None) -> None:
        if applied := self.marks().applied:  # stamps change up to the mark: it counts no more
            mark = f"{self._directory.at(self._place, _APPLIED)}{applied:012d}"
            files.write(mark, b"", self._system)
        for key in [key for _, key in self.scan(computation)] if keys is None else keys:
            known, versions = self._load(computation, key)
            now = {
                place: c._replace(stamp=epoch, value=None) if c.stamp <= epoch else c
                for place, c in known.items()
            }
            if now != known:
                before = stamp_before(versions, epoch)
                self._store_key(self._place, computation, key, now, versions, before)

    def _store_key(
        self, place: str, computation: str, key: bytes, cells: Cells, older: Sequence[Version],
        before: int,
    ) -> None:  # fmt: skip
        directory = self._bucket(place, computation, key)
        if directory not in self._made:
            files.make_directory(directory, self._system)
            self._made.add(directory)
        rows = [(*where, c.stamp, c.value, c.expires, c.version) for where, c in cells.items()]
        data = msgspec.msgpack.encode(KeyFile(key, rows, before))
        stamp = max(c.stamp for c in cells.values())
        dead = DEAD if any(c.value is None for c in cells.values()) else ""
        digest = xxhash.xxh3_64_hexdigest(data)
        name = f"{stem_of(key)}.{stamp:012d}.{digest}{dead}"
        files.write(os.path.join(directory, name), data, self._system)
        for version in sorted(older, key=lambda v: v.stamp)[: 1 - _KEPT]:
            if version.name != name:
                files.remove(os.path.join(directory, version.name), self._system)

    def _load(self, computation: str, key: bytes) -> tuple[Cells, list[Version]]:
        """The cells of a key, joined from all its versions, and those versions."""
        directory, stem = self._bucket(self._place, computation, key), f"{stem_of(key)}."
        for _ in range(_LOOKS_MAX):
            try:
                names = self._system.files.list(directory)
            except FileNotFoundError:
                return {}, []
            versions = [parsed(name) for name in names if name.startswith(stem)]
            try:
                read = [self._read(directory, version.name) for version in versions]
            except FileNotFoundError:
                continue  # a writer has removed one that it has joined with its own
            mine = [each.cells for each in read if each.key == key]
            pairs = zip(versions, read, strict=True)
            return joined(mine), [v._replace(before=each.before) for v, each in pairs]
        raise StoreError(f"the versions of a key in {directory} change all the time: try later")

    def _read(self, directory: str, name: str) -> KeyFile:
        path = os.path.join(directory, name)
        with files.explained("read", path):
            data = self._system.files.read(path)
        if xxhash.xxh3_64_hexdigest(data) != name.removesuffix(DEAD).rpartition(".")[2]:
            raise CorruptCheckpoint(
                f"{path} does not have the digest that is in its name: put back a copy of it"
            )
        return msgspec.msgpack.decode(data, type=KeyFile)

    def _bucket(self, place: str, computation: str, key: bytes) -> str:
        hash_text = f"{hash_key(key):016x}"
        safe = paths.safe(computation)
        return self._directory.at(place, _CELLS, safe, hash_text[:2], hash_text[2:4])

    # Reading --------------------------------------------------------------

    def read_fields(
        self, computation: str, keys: Sequence[bytes], hashes: Hashes
    ) -> Sequence[Mapping[str, AppliedCell]]:
        found = (self._load(computation, key)[0] for key in keys)
        return [{w[1]: c for w, c in cells.items() if w[0] == FIELD} for cells in found]

    def read_entry(
        self, computation: str, name: str, key: bytes, entry: bytes
    ) -> AppliedCell | None:
        return self._load(computation, key)[0].get((ENTRY, name, entry))

    def read_range(
        self, computation: str, name: str, key: bytes, low: bytes | None, high: bytes | None
    ) -> Iterable[tuple[bytes, AppliedCell]]:
        return [
            (entry, cell)
            for (kind, field, entry), cell in self._load(computation, key)[0].items()
            if (kind, field) == (ENTRY, name)
            if (low is None or entry >= low) and (high is None or entry < high)
        ]

    def map_names(self, computation: str, key: bytes) -> Sequence[str]:
        found = self._load(computation, key)[0]
        return list(dict.fromkeys(field for kind, field, _ in found if kind == ENTRY))

    def scan(self, computation: str) -> Iterator[tuple[int, bytes]]:
        for directory, names in self._buckets(self._place, computation):
            for stem in dict.fromkeys(name.partition(".")[0] for name in names):
                for name in names:
                    if name.startswith(f"{stem}."):
                        try:
                            key = self._read(directory, name).key
                        except FileNotFoundError:
                            continue  # a newer version is there
                        yield hash_key(key), key
                        break

    def computations(self) -> Sequence[str]:
        found = self._directory.list(self._place, _CELLS) if self._place else []
        return [paths.unsafe(name) for name in found]

    def _buckets(self, place: str, computation: str) -> Iterator[tuple[str, list[str]]]:
        safe = paths.safe(computation)
        for first in self._directory.list(place, _CELLS, safe):
            for second in self._directory.list(place, _CELLS, safe, first):
                names = self._directory.list(place, _CELLS, safe, first, second)
                yield self._directory.at(place, _CELLS, safe, first, second), names

    def _key_of(self, directory: str, stem: str) -> bytes:
        """The key whose versions have names that begin so."""
        for _ in range(_LOOKS_MAX):
            for name in self._system.files.list(directory):
                if name.startswith(f"{stem}."):
                    try:
                        return self._read(directory, name).key
                    except FileNotFoundError:
                        break
        raise StoreError(f"the versions of a key in {directory} change all the time: try later")

    # Purge ----------------------------------------------------------------

    def purge(self, upto: int) -> None:
        """Makes a new place without tombstones up to the floor, if that is worth it."""
        applied = self.marks().applied
        floor = min(upto, applied)
        if floor <= self._floor() or not self._is_worth_it():
            return
        if lost := self.lost():  # it would look as if it had never been, in the new place
            mark = f"{self._directory.at(self._place, _APPLIED)}{applied:012d}"
            raise CorruptCheckpoint(f"{lost}; or make {mark} empty, to go on with what is there")
        old, place = self._place, f"{self._generation:06d}-{floor:012d}"
        making = f".{place}.{self._system.token_hex(4)}.tmp"
        self._directory.make(making)
        for computation in self.computations():
            for directory, names in self._buckets(old, computation):
                self._copy_bucket(making, computation, directory, names, floor)
        # `applied` was read before the cells: those of later epochs may be missing.
        self._mark(making, applied, self._count(making, applied))
        target = self._directory.at(place)
        if self._system.files.exists(target):  # by an earlier try, and no commit has named it
            self._system.files.remove_tree(target)
        self._system.files.rename(self._directory.at(making), target)
        files.sync_directory(self._directory.path, self._system)
        self._place, self._made = place, set()

    def _is_worth_it(self) -> bool:
        keys = dead = 0
        for computation in self.computations():
            for _, names in self._buckets(self._place, computation):
                keys += len({name.partition(".")[0] for name in names})
                dead += len({n.partition(".")[0] for n in names if n.endswith(DEAD)})
        return dead > 0 and dead >= keys * self._purge_share

    def _copy_bucket(
        self, place: str, computation: str, directory: str, names: Sequence[str], floor: int
    ) -> None:
        """The keys of a bucket in another place: a link, or a new file where tombstones go."""
        of_key: defaultdict[str, list[str]] = defaultdict(list)
        for name in names:
            of_key[name.partition(".")[0]].append(name)
        for versions in of_key.values():
            try:
                read = [self._read(directory, name) for name in versions]
            except FileNotFoundError:  # a late writer has joined versions of this key just now
                key = self._key_of(directory, versions[0].partition(".")[0])
                cells, found = self._load(computation, key)
                versions = [version.name for version in found]
            else:
                key, cells = read[0].key, joined(each.cells for each in read)
            kept = {
                where: c for where, c in cells.items() if c.value is not None or c.stamp > floor
            }
            if not kept:
                continue
            if len(versions) > 1 or kept != cells:
                self._store_key(place, computation, key, kept, (), before=0)  # it is marked
                continue
            target = self._bucket(place, computation, key)
            if target not in self._made:
                files.make_directory(target, self._system)
                self._made.add(target)
            path = os.path.join(directory, versions[0])
            files.link(path, os.path.join(target, versions[0]), self._system)
