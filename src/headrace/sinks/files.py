"""Epochs as directories of files: each epoch appears complete, by one rename, and only once.

    out/epoch=000000000012/part-<label>.jsonl    what readers see
    out/_staging/<epoch>.<nonce>/                a driver builds an epoch here
    out/_claims/<epoch>                          which of those directories is the epoch
    out/_high_water/<epoch>                      published up to here, even if moved away since
    out/_identity                                the checkpoint that owns this directory

With groups (`grouped/groups`) an epoch is renamed to `out/_held/epoch=…` instead, and appears later
as a part of a group.

Readers must ignore names that start with `_`, as Spark and pyarrow do. A reader that takes a
glob pattern gets `out/epoch=*/**`.

Invariants (protocol F1 to F3):
- Only the directory that the claim names is ever renamed into place. So two drivers that race,
  or one that wakes late, finish the same delivery and never repeat it.
- The high-water mark rises after the rename is on disk and before the claim is deleted.
  A consumer may therefore move an epoch away at any time.
- Staging directories and claims are deleted only at or below the high-water mark.
- Claim and high-water mark name the commit of their epoch. All drivers of one checkpoint
  agree on it, because it is in their log. If a copy of the checkpoint runs at the same time, it
  has the same id and epoch numbers but other commits: it is refused. An epoch without rows is not
  claimed. So its delivery looks for a foreign claim after it writes its high-water mark, and a
  delivery with rows looks for a foreign high-water mark after it writes its claim: at least one
  of the two sees the other.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from headrace.errors import HeadraceError, IncompatibleState, InvalidPipeline, SinkError
from headrace.failpoints import reach
from headrace.model.sink import Delivery, Opening, Part, Sink
from headrace.model.values.rows import Rows
from headrace.sinks.epoch_directory import build, publish
from headrace.sinks.grouped.groups import HELD, EpochGroups, Grouping
from headrace.sinks.high_water import (
    HighWater,
    HighWaterMark,
    epoch_name,
    highest_marker,
    remove_old,
)
from headrace.sinks.row_format import RowFormat
from headrace.store.disk import DiskStore
from headrace.store.files import explained
from headrace.store.location import filesystem_path
from headrace.store.store import Store
from headrace.system import REAL, System

_STAGING = "_staging"
_CLAIMS = "_claims"
_MARKS = "_high_water"
_IDENTITY = "_identity"
TARGET_BYTES = 64 << 20
"""How large a file of a group becomes, about."""
_logger = logging.getLogger("headrace.sinks")
_STAGED = re.compile(r"(\d{12})\.(weak-)?[0-9a-f]+")


class Claim(msgspec.Struct, frozen=True):
    """Names the one staged directory that becomes an epoch."""

    staging: str
    mark: HighWaterMark


class FileSink(Sink):
    """A directory of epochs. A format encodes rows as the bytes of a file."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: RowFormat,
        grouping: Grouping | None = None,
    ) -> None:
        self.format = format
        self.grouping = grouping
        self.path = _local(path)
        self._staging = self.path / _STAGING
        self._use(REAL)
        self._opened = False
        self._place = ""
        """Where the checkpoint lies, for messages."""
        self._held_bytes = 0
        self._held_since_s = 0.0

    def _use(self, system: System) -> None:
        """Small files go through a store; an epoch's directory is built and renamed by `system`."""
        self._system = system
        self._store = DiskStore(self.path, system)
        self._claims = self._store.below(_CLAIMS)
        self._marks = self._store.below(_MARKS)
        self._groups = EpochGroups(self.path, system)

    def encode(self, rows: Rows) -> bytes:
        return self.format.encode(rows)

    def identity(self) -> str:
        return f"file:{self._system.files.real_path(self.path)}"

    def open(self, opening: Opening) -> None:
        try:
            with explained("open", self.path):
                self._opened, self._place = False, opening.place
                self._use(opening.store.system)
                self._admit(opening.checkpoint)
                self._opened = True
                # A marker of a driver that died may be visible but not durable yet. This
                # driver relies on it from now on, so make it durable.
                self._store.sync("")
                if self._system.files.is_directory(self.path / _MARKS):
                    self._marks.sync("")
                if self.grouping is not None:
                    self._groups.make_directories()
                self._verify_last(opening)
                self._sweep(self.high_water())
                self._publish_held()  # those of an earlier driver: how long they wait is not known
        except (FileExistsError, FileNotFoundError) as error:
            raise self._refused(error) from error

    def high_water(self) -> int:
        return highest_marker(self._marks)

    def deliver(self, delivery: Delivery) -> None:
        try:
            with explained("publish an epoch in", self.path):
                self._admit(delivery.checkpoint)
                if delivery.weak:
                    self._publish_weak(delivery)
                else:
                    self._publish(delivery)
                    self._publish_due()
        except (FileNotFoundError, FileExistsError) as error:
            # Another driver finished this epoch and deleted the staging of this one.
            if not delivery.weak and self.high_water() >= delivery.epoch:
                self.verify(delivery.epoch, delivery.commit)
                return
            raise self._refused(error, epoch=delivery.epoch) from error

    def verify(self, epoch: int, commit: str) -> None:
        self._mark(self._owner() or "", self._place).verify(epoch, commit)

    def _publish(self, delivery: Delivery) -> None:
        epoch, mark = delivery.epoch, self._mark(delivery.checkpoint, delivery.place)
        # 1. Delivered before: nothing to do, even if the consumer has moved the files away.
        if self.high_water() >= epoch:
            mark.verify(epoch, delivery.commit)
            return
        # 2. Build the epoch in staging, durably. Without rows there is nothing to claim.
        staging = f"{epoch_name(epoch)}.{self._system.token_hex(6)}"
        if size := self._build(staging, delivery.parts):
            reach("before-claim")
            # 3. Claim it. Whichever driver wins, the claim says which directory is the epoch.
            claim = self._claim(epoch, Claim(staging, _came_of(delivery)))
            reach("after-claim")
            # 4. Read the high-water mark again, now that the claim is known: a claim that was
            #    deleted after publication and put again here must not publish a second time.
            if claim is None or self.high_water() >= epoch:
                mark.verify(epoch, delivery.commit)
                self._sweep(self.high_water())
                return
            # 5. One rename makes the epoch visible.
            self._rename(claim.staging, self._home(epoch), epoch)
            reach("after-publish")
        # 6. Raise the high-water mark. Only after that may claim and staging be deleted.
        mark.advance(epoch, delivery.commit, empty=not size and delivery.complete)
        reach("after-high-water")
        if not size:
            self._keep_empty(epoch, _came_of(delivery))
        elif self.grouping is not None:
            if not self._held_bytes:
                self._held_since_s = self._system.uptime_s()
            self._held_bytes += size

    def close(self) -> None:
        """Publishes what is held: nobody can say when the next run begins."""
        try:
            if self._opened:
                self._publish_held()
        except (OSError, HeadraceError) as error:
            _logger.warning(
                "%s: the newest rows are kept in %s, and are not listed yet: %s. The next run, or "
                "headrace compact-output, publishes them",
                self.path, HELD, error,
            )  # fmt: skip

    def _home(self, epoch: int) -> str:
        name = f"epoch={epoch_name(epoch)}"
        return name if self.grouping is None else f"{HELD}/{name}"

    def _publish_due(self) -> None:
        """Publishes a group, if one is due."""
        if self.grouping is None or not self._held_bytes:
            return
        waited = self._system.uptime_s() - self._held_since_s
        if self.grouping.is_due(self._held_bytes, waited):
            self._publish_held()

    def _publish_held(self) -> None:
        if self._groups.exist():
            target = TARGET_BYTES if self.grouping is None else self.grouping.target_bytes
            self._groups.publish(self.high_water(), target)
        self._held_bytes = 0

    def tidy(self) -> None:
        self._sweep(high_water := self.high_water())
        kept = self._system.limits.high_water_markers_kept
        remove_old(self._marks, up_to=high_water - kept)

    def _publish_weak(self, delivery: Delivery) -> None:
        """Shows an epoch before its commit, under a name of its own, and writes no marker."""
        self._sweep(self.high_water(), weak_before=delivery.epoch)
        name, nonce = epoch_name(delivery.epoch), f"weak-{self._system.token_hex(6)}"
        if self._build(f"{name}.{nonce}", delivery.parts):
            self._rename(f"{name}.{nonce}", f"epoch={name}-{nonce}", delivery.epoch)

    def _admit(self, checkpoint: str) -> None:
        """Refuses a directory of another checkpoint; takes one that belongs to no checkpoint."""
        owner = self._owner()
        if owner is None and self._opened:
            # Do not create a new directory: it would lack the markers of the old one, and
            # would conflict with the old one when that comes back.
            raise SinkError(
                f"{self.path} is missing, or has lost its {_IDENTITY}: put it back (is it "
                "still mounted?), or start again to begin a new one"
            ) from OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(self.path))
        if owner is None:
            for directory in ("", _STAGING, _CLAIMS, _MARKS):
                self._store.make_directory(directory)
            has_epochs = any(name.startswith("epoch=") for name in self._store.list(""))
            # The owner's name is written before its first epoch: read it after listing epochs.
            if has_epochs and self._owner() is None:
                raise SinkError(
                    f"{self.path} holds epochs, but nothing says of which checkpoint: choose a "
                    "fresh output directory, or delete the old one if its rows are not needed"
                )
            self._store.put_if_absent(_IDENTITY, checkpoint.encode())
            owner = self._owner()
        if owner == checkpoint and not self._opened:
            for directory in (_STAGING, _CLAIMS):  # a person may have deleted them
                self._store.make_directory(directory)
        if owner != checkpoint:
            raise SinkError(
                f"{self.path} belongs to the checkpoint {owner}, not to {checkpoint}: choose a "
                "fresh output directory, or delete the old one if its rows are not needed"
            )

    def _owner(self) -> str | None:
        try:
            return self._store.read(_IDENTITY).decode()
        except FileNotFoundError:
            return None

    def _build(self, staging: str, parts: Sequence[Part]) -> int:
        root = self._staging / staging
        return build(root, parts, self.format, self._system)

    def _claim(self, epoch: int, mine: Claim) -> Claim | None:
        """The claim that counts, mine or another driver's; None where it is already deleted."""
        name = epoch_name(epoch)
        if not self._claims.put_if_absent(name, msgspec.json.encode(mine)):
            self._claims.sync("")
        try:
            found = _read_claim(self._claims, name)
        except FileNotFoundError:
            if self.high_water() >= epoch:
                return None
            raise
        path = self._claims.where(name)
        if (owner := found.mark.checkpoint) != mine.mark.checkpoint:
            raise SinkError(f"{path} was made by the checkpoint {owner}: see {_IDENTITY}")
        mine.mark.require(found.mark, epoch, str(self.path))
        if "/" in found.staging or not found.staging.startswith(f"{epoch_name(epoch)}."):
            raise SinkError(f"{path} claims {found.staging!r}, which is not in {_STAGING}: damaged")
        return found

    def _verify_last(self, opening: Opening) -> None:
        """Refuses a directory in which another copy of the checkpoint has delivered."""
        mark = self._mark(opening.checkpoint, opening.place)
        mark.verify_last(opening.commits)
        last = mark.read()
        found = mark.find(last)
        if found is not None and found.empty:
            self._require_empty(last, found)

    def _keep_empty(self, epoch: int, mine: HighWaterMark) -> None:
        """Moves away the staging of a copy that claimed this epoch with rows."""
        try:
            claim = _read_claim(self._claims, epoch_name(epoch))
        except (FileNotFoundError, SinkError):
            return  # a damaged claim is reported by the code that needs it
        if claim.mark.commit == mine.commit:
            return
        aside = f"{epoch_name(epoch)}.{self._system.token_hex(6)}"
        try:
            # This fails where the copy has already published its staging.
            self._system.files.rename(self._staging / claim.staging, self._staging / aside)
        except FileNotFoundError:
            self._require_empty(epoch, mine)

    def _require_empty(self, epoch: int, mine: HighWaterMark) -> None:
        name = f"epoch={epoch_name(epoch)}"
        for shown in (self.path / name, self.path / HELD / name):
            if not self._system.files.exists(shown):
                continue
            raise IncompatibleState(
                f"{shown} holds rows of another copy of this checkpoint (id {mine.checkpoint}), "
                f"which wrote there at the same time; this one, at {mine.place or 'another place'},"
                " has none in that epoch. Stop the other copy and give it another place to write "
                "to; then move the directory away, and start this one again"
            )

    def _mark(self, checkpoint: str, place: str) -> HighWater:
        return HighWater(self._marks, checkpoint, place, str(self.path))

    def _rename(self, staging: str, name: str, epoch: int) -> None:
        publish(self._staging / staging, self.path / name, self._system, what=f"epoch {epoch}")
        self._store.sync(name.rpartition("/")[0])
        self._store.sync(_STAGING)

    def _sweep(self, high_water: int, *, weak_before: int = 0) -> None:
        """Deletes claims and staging directories that no delivery can need any more."""
        remove_old(self._claims, up_to=high_water)
        try:
            names = self._system.files.list(self._staging)
        except FileNotFoundError:
            return
        for name in names:
            found = _STAGED.fullmatch(name)
            limit = max(high_water, weak_before - 1) if found and found[2] else high_water
            if found and int(found[1]) <= limit:
                self._system.files.remove_tree(self._staging / name)

    def _refused(self, error: OSError, *, epoch: int | None = None) -> SinkError:
        what = "cannot be used" if epoch is None else f"cannot take epoch {epoch}"
        return SinkError(f"{self.path} {what}: {error.strerror}: {error.filename}")


def _came_of(delivery: Delivery) -> HighWaterMark:
    return HighWaterMark(delivery.checkpoint, delivery.commit, delivery.place)


def _read_claim(claims: Store, name: str) -> Claim:
    try:
        return msgspec.json.decode(claims.read(name), type=Claim)
    except msgspec.DecodeError as error:
        raise SinkError(
            f"{claims.where(name)} is damaged, and does not say which files are the epoch"
        ) from error


def _local(path: str | os.PathLike[str]) -> Path:
    text = filesystem_path(path)
    if text is None:
        raise InvalidPipeline(
            f"{os.fspath(path)}: file sinks write to a mounted filesystem, not to a URL"
        )
    return Path(text).expanduser().absolute()
