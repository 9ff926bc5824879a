"""Groups of epochs: small epochs are held back, and appear together as one directory.

    out/_held/epoch=000000000012/            an epoch that is delivered, and not yet listed
    out/epoch=000000000064/                  a group: all epochs that were held, up to this one
    out/_rows/000000000064                   which rows of its files belong to which epoch
    out/_staging/group-000000000064.<nonce>/ a driver builds a group here
    out/_groups/<first>                      the claim: which of those directories is the group
    out/_grouped/<last>                      the mark: epochs up to here are in groups

A row appears below `out/epoch=…` once, in a file that never changes: whoever lists the directory,
or watches it for new files, gets each row once, later. `read_output` also reads what is held.

The order is that of an epoch (`sinks/files`):
1. Build the group, durably. It is made of all epochs that are held, so of a complete run: an epoch
   is held before the high-water mark passes it.
2. Claim it, under the first epoch that no group has. The claim says what the group is, with its
   rows: another driver with other epochs finishes this one.
3. Read the mark again. It has reached that first epoch: this claim came too late.
4. Put `_rows`, for readers that find the group. Then one rename makes it visible. No other file
   may lie beside its parts: some people list with a pattern, `out/epoch=*/**`.
5. Raise the mark. Only after that is anything deleted: held epochs, claims, staged groups.

A driver that sleeps at any step therefore finds the mark raised at 3, or nothing to rename at 4.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from headrace.errors import SinkError
from headrace.failpoints import reach
from headrace.sinks.epoch_directory import build_files, publish
from headrace.sinks.grouped.merging import SUFFIXES, Piece, RowsOf, merged
from headrace.sinks.high_water import epoch_name, highest_marker, remove_old
from headrace.store.disk import DiskStore
from headrace.system import System

HELD = "_held"
ROWS = "_rows"
CLAIMS = "_groups"
MARKS = "_grouped"
STAGING = "_staging"
_HELD = re.compile(r"epoch=(\d{12})")
_STAGED = re.compile(r"group-(\d{12})\.[0-9a-f]+")


class Grouping(msgspec.Struct, frozen=True):
    """When the epochs that are held become a group."""

    target_bytes: int
    within_s: float

    def is_due(self, held_bytes: int, waited_s: float) -> bool:
        """Whether they do now; `waited_s` is how long the oldest one has waited."""
        return held_bytes >= self.target_bytes or waited_s >= self.within_s


class GroupClaim(msgspec.Struct, frozen=True):
    """Names the staged directory that becomes a group, and the last epoch in it."""

    last: int
    staging: str
    rows: list[RowsOf]
    """What `_rows` of the group holds."""


class EpochGroups:
    """The groups of one output directory."""

    def __init__(self, path: Path, system: System) -> None:
        self._path, self._system = path, system
        self._store = DiskStore(path, system)
        self._claims, self._marks = self._store.below(CLAIMS), self._store.below(MARKS)
        self._rows = self._store.below(ROWS)

    def make_directories(self) -> None:
        """Creates what groups need."""
        for name in (STAGING, HELD, CLAIMS, ROWS, MARKS):
            self._store.make_directory(name)

    def exist(self) -> bool:
        """Whether epochs were ever held here."""
        return self._system.files.is_directory(self._path / MARKS)

    def mark(self) -> int:
        """The last epoch that is in a group, or 0."""
        return highest_marker(self._marks)

    def held(self) -> list[int]:
        """Epochs that are held, in order; those that a group has just taken may be among them."""
        found = map(_HELD.fullmatch, self._store.list(HELD))
        return sorted(int(name[1]) for name in found if name)

    def publish(self, up_to: int, target_bytes: int) -> int:
        """Makes a group of the epochs that are held, as far as `up_to`; returns how many.

        `up_to` is at most the high-water mark of the directory.
        """
        self._marks.sync("")  # a mark that a driver has put which then died
        first = self.mark() + 1
        claim = self._find(first)
        count = 0
        if claim is None:
            epochs = [epoch for epoch in self.held() if first <= epoch <= up_to]
            if not epochs:
                self.sweep()
                return 0
            count = len(epochs)
            try:
                mine = self._build(epochs, target_bytes)
            except FileNotFoundError:
                if self.mark() >= first:
                    return 0  # another driver has published them
                raise
            reach("before-claim")
            if not self._claims.put_if_absent(epoch_name(first), msgspec.json.encode(mine)):
                self._claims.sync("")
            claim = self._find(first)
            reach("after-claim")
        if claim is None or self.mark() >= first:
            self.sweep()
            return 0
        if not self._rows.put_if_absent(epoch_name(claim.last), msgspec.json.encode(claim.rows)):
            self._rows.sync("")
        self._rename(claim)
        reach("after-publish")
        if not self._marks.put_if_absent(epoch_name(claim.last), b""):
            self._marks.sync("")
        reach("after-high-water")
        self.sweep()
        return count

    def sweep(self) -> None:
        """Deletes what groups have taken, and what no driver can need any more."""
        mark, files = self.mark(), self._system.files
        for epoch in self.held():
            if epoch <= mark:
                files.remove_tree(self._path / HELD / f"epoch={epoch_name(epoch)}")
        for name in self._store.list(STAGING):
            found = _STAGED.fullmatch(name)
            if found and int(found[1]) <= mark:
                files.remove_tree(self._path / STAGING / name)
        remove_old(self._claims, up_to=mark)
        for name in self._rows.list(""):  # of groups that the consumer has moved away
            if (
                name.isdigit()
                and int(name) <= mark
                and not files.exists(self._path / f"epoch={name}")
            ):
                self._rows.delete(name)
        marks = sorted(name for name in self._marks.list("") if name.isdigit())
        if len(marks) > (kept := self._system.limits.high_water_markers_kept):
            remove_old(self._marks, up_to=int(marks[-kept]) - 1)

    def _build(self, epochs: list[int], target_bytes: int) -> GroupClaim:
        staging = f"group-{epoch_name(epochs[-1])}.{self._system.token_hex(6)}"
        pieces = [piece for epoch in epochs for piece in self._pieces(epoch)]
        rows: list[RowsOf] = []

        def files() -> Iterator[tuple[str, str, bytes]]:
            for file in merged(pieces, target_bytes):
                rows.extend(file.of)
                yield file.directory, file.name, file.data

        build_files(self._path / STAGING / staging, files(), self._system)
        return GroupClaim(epochs[-1], staging, rows)

    def _pieces(self, epoch: int) -> Iterator[Piece]:
        for directory, name, data in held_files(self._path, epoch, self._system):
            yield Piece(epoch, directory, name[name.rindex(".") :], data)

    def _find(self, first: int) -> GroupClaim | None:
        try:
            found = msgspec.json.decode(self._claims.read(epoch_name(first)), type=GroupClaim)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise SinkError(
                f"{self._claims.where(epoch_name(first))} is damaged, and does not say which files "
                "are the group"
            ) from error
        return found

    def _rename(self, claim: GroupClaim) -> None:
        name = epoch_name(claim.last)
        source, target = self._path / STAGING / claim.staging, self._path / f"epoch={name}"
        publish(source, target, self._system, what=f"the group of epochs up to {claim.last}")
        self._store.sync("")
        self._store.sync(STAGING)


def held_files(path: Path, epoch: int, system: System) -> list[tuple[str, str, bytes]]:
    """(directory, name, bytes) of the files of an epoch that is held, in order."""
    root = path / HELD / f"epoch={epoch_name(epoch)}"
    found: list[tuple[str, str, bytes]] = []

    def look(below: str) -> None:
        home = root / below
        for name in sorted(system.files.list(home)):
            if name.endswith(SUFFIXES) and not system.files.is_directory(home / name):
                found.append((below, name, system.files.read(home / name)))
            else:
                look(f"{below}/{name}" if below else name)

    look("")
    return found


def read_rows(path: Path, last: int) -> list[RowsOf] | None:
    """The rows of the group that ends with an epoch; None if that epoch is one of its own."""
    try:
        data = (path / ROWS / epoch_name(last)).read_bytes()
    except FileNotFoundError:
        return None
    return msgspec.json.decode(data, type=list[RowsOf])
