"""The last epoch that a sink delivered, kept so that it only rises (protocol F2).

There is one marker file per epoch, put if absent; the mark is the largest epoch among them. So a
paused driver that wakes can add an old marker, but never lower the mark. Older markers are deleted
only after a higher one is on disk, now and then (`tidy`), and the newest few always stay, because a
directory that is read while names are added and deleted may miss one of them.

Markers are listed once. After that a read asks for the next marker only, and lists again if that
one exists, or if the outcome of a put is unknown.

A marker says where its epoch came from: the checkpoint's id and place, and the commit. All drivers
of one checkpoint share its log and so its commits. If a copy of the checkpoint runs at the same
time, it has the same id and the same epoch numbers but other commits: it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from headrace.errors import IncompatibleState, StoreError
from headrace.log.paths import safe
from headrace.model.sink import Opening
from headrace.store.store import Store

_MARKER = re.compile(r"\d{12}")


def epoch_name(epoch: int) -> str:
    """An epoch as a name that sorts."""
    return f"{epoch:012d}"


class HighWaterMark(msgspec.Struct, frozen=True):
    """The content of a marker: the checkpoint and the commit that an epoch came from."""

    checkpoint: str
    commit: str = ""
    """As in `Delivery.commit`; "" where the commit is not known."""
    place: str = ""
    """Where that checkpoint lay, for messages."""
    empty: bool = False
    """Whether the epoch has no rows here."""

    def require(self, found: HighWaterMark | None, epoch: int, where: str) -> None:
        """Raises IncompatibleState where an epoch was delivered from another commit."""
        if found is None or not found.commit or not self.commit or found.commit == self.commit:
            return
        theirs, mine = found.place or "a place that is not known", self.place or "another"
        raise IncompatibleState(
            f"{where} has epoch {epoch} from another copy of this checkpoint (id "
            f"{self.checkpoint}). That copy lies, or lay, at {theirs}; this one, at {mine}, has "
            "other commits since then, and would lose or repeat rows there. Keep that copy and "
            "delete this one, or give this one another place to write to"
        )


class HighWater:
    """A high-water mark in a part of a store: the checkpoint's, or the sink's own."""

    def __init__(self, store: Store, checkpoint: str, place: str = "", where: str = "") -> None:
        """`place` is the checkpoint's, `where` the sink's: both for messages."""
        self._store = store
        self._where = where or store.where()
        self._mark = HighWaterMark(checkpoint, "", place)
        self._last: int | None = None
        """The last epoch delivered, as far as this object knows."""
        self._just_read = False

    def read(self) -> int:
        """The last epoch delivered, by this driver or another, or 0."""
        if self._last is None or self._is_marked(self._last + 1):
            self._last = highest_marker(self._store)
        self._just_read = True
        return self._last

    def read_again(self) -> int:
        """`read`, without a request if nothing was delivered since the last read."""
        if self._last is None or not self._just_read:
            return self.read()
        return self._last

    def advance(self, epoch: int, commit: str = "", *, empty: bool = False) -> None:
        """Records, durably, that everything up to `epoch` was delivered."""
        mine = msgspec.structs.replace(self._mark, commit=commit, empty=empty)
        known, self._last, self._just_read = self._last, None, False  # until the put has answered
        self._store.make_directory("")
        if not self._store.put_if_absent(epoch_name(epoch), msgspec.json.encode(mine)):
            # Another driver put the marker, perhaps just now: make it durable.
            self._store.sync("")
            self.verify(epoch, commit)
        if known is not None:
            self._last = max(known, epoch)

    def tidy(self) -> None:
        """Deletes old markers."""
        kept = self._store.system.limits.high_water_markers_kept
        remove_old(self._store, up_to=self.read() - kept)

    def verify(self, epoch: int, commit: str) -> None:
        """Raises IncompatibleState where this epoch was delivered from another commit."""
        mine = msgspec.structs.replace(self._mark, commit=commit)
        mine.require(self.find(epoch), epoch, self._where)

    def find(self, epoch: int) -> HighWaterMark | None:
        """The marker of an epoch; None where it is missing or has no content."""
        try:
            return msgspec.json.decode(self._store.read(epoch_name(epoch)), type=HighWaterMark)
        except (FileNotFoundError, msgspec.DecodeError):
            return None  # the name alone already raises the mark

    def _is_marked(self, epoch: int) -> bool:
        try:
            self._store.read(epoch_name(epoch))
        except FileNotFoundError:
            return False
        return True

    def verify_last(self, commits: Mapping[int, str]) -> None:
        """`verify` for the last delivered epoch, where `commits` has it."""
        epoch = self.read()
        self._just_read = False  # long ago when the first epoch comes
        self.verify(epoch, commits.get(epoch, ""))


def open_high_water(opening: Opening) -> HighWater:
    """The high-water mark of a sink that keeps it in the checkpoint.

    Its name contains the checkpoint's id: a copy restored under another id begins without a mark.
    """
    store = opening.store.below(safe(opening.checkpoint))
    store.make_directory("")
    mark = HighWater(store, opening.checkpoint, opening.place)
    mark.verify_last(opening.commits)
    return mark


def highest_marker(store: Store) -> int:
    """The largest epoch among the markers, or 0."""
    return max((int(name) for name in store.list("") if _MARKER.fullmatch(name)), default=0)


def remove_old(store: Store, *, up_to: int) -> None:
    """Deletes the files named by old epochs, and old temporary files of killed writers."""
    old = [name for name in store.list("") if _MARKER.fullmatch(name) and int(name) <= up_to]
    try:
        for name in old:
            store.delete(name)
        store.sweep("", store.system.limits.leftover_age_s)
    except (OSError, StoreError):
        pass  # Another driver deletes them too; the rest is deleted next time.
