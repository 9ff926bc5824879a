"""The last epoch that a sink delivered, kept so that it only rises (PROTOCOL F2).

One marker file per epoch, put if absent and read as the maximum: a paused driver
that wakes can add an old marker, never lower the mark. Older markers go only after
a higher one is on disk, and the newest few always stay, because a directory read
while names come and go may miss one of them.

A marker says what the epoch came of: the checkpoint's id and place, and its commit.
Drivers of one checkpoint share its log and so its commits, whoever of them delivers.
A copy of the checkpoint that runs as well has the same id and the same numbers, and
other commits: it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from headrace.errors import IncompatibleState, SinkError
from headrace.log.paths import safe
from headrace.model.sink import Opening
from headrace.store.files import explained, make_directory, put_if_absent, sync_directory
from headrace.system import REAL, System

_MARKER = re.compile(r"\d{12}")
_MARKER_OR_TEMPORARY = re.compile(r"\.?(\d{12})(\.[0-9a-f]+\.tmp)?")


def epoch_name(epoch: int) -> str:
    """An epoch as a name that sorts."""
    return f"{epoch:012d}"


class HighWaterMark(msgspec.Struct, frozen=True):
    """What an epoch came of."""

    checkpoint: str
    commit: str = ""
    """As in `Delivery.commit`; "" where that is not known."""
    place: str = ""
    """Where that checkpoint lay, for messages."""
    empty: bool = False
    """Whether the epoch has no rows here."""

    def require(self, found: HighWaterMark | None, epoch: int, where: str) -> None:
        """IncompatibleState where an epoch is there already, and came of another commit."""
        if found is None or not found.commit or not self.commit or found.commit == self.commit:
            return
        theirs, mine = found.place or "a place that is not known", self.place or "another"
        raise IncompatibleState(
            f"{where} has epoch {epoch} from another copy of this checkpoint (id "
            f"{self.checkpoint}). That copy lies, or lay, at {theirs}; this one, at {mine}, has "
            "gone its own way since, and would lose or repeat rows there. Let that copy go on and "
            "delete this one, or give this one another place to write to"
        )


class HighWater:
    """A high-water mark in a directory; in this object where there is no directory."""

    def __init__(
        self,
        directory: str | Path | None,
        checkpoint: str,
        place: str = "",
        where: str = "",
        system: System = REAL,
    ) -> None:
        """`place` is the checkpoint's, `where` the sink's: both for messages."""
        self._directory = None if directory is None else Path(directory)
        self._where = where or str(directory or "this process")
        self._mark = HighWaterMark(checkpoint, "", place)
        self._system = system
        self._epoch = 0
        self._found: HighWaterMark | None = None

    def read(self) -> int:
        """The last epoch delivered, or 0."""
        if self._directory is None:
            return self._epoch
        return highest_marker(self._directory, self._system)

    def advance(self, epoch: int, commit: str = "", *, empty: bool = False) -> None:
        """Says, durably, that everything up to `epoch` was delivered."""
        mine = msgspec.structs.replace(self._mark, commit=commit, empty=empty)
        if self._directory is None:
            if epoch > self._epoch:
                self._epoch, self._found = epoch, mine
            return
        make_directory(self._directory, self._system)
        marker = self._directory / epoch_name(epoch)
        if not put_if_absent(marker, msgspec.json.encode(mine), self._system):
            # Another driver put it, perhaps an instant ago: make sure that it stays.
            sync_directory(self._directory, self._system)
            self.verify(epoch, commit)
        kept = self._system.limits.high_water_markers_kept
        remove_names(self._directory, self._system, up_to=epoch - kept)

    def verify(self, epoch: int, commit: str) -> None:
        """IncompatibleState where the epoch was delivered, and came of another commit."""
        mine = msgspec.structs.replace(self._mark, commit=commit)
        mine.require(self.found(epoch), epoch, self._where)

    def found(self, epoch: int) -> HighWaterMark | None:
        """What an epoch came of, where that is known."""
        if self._directory is None:
            return self._found if epoch == self._epoch else None
        return _read_mark(self._directory / epoch_name(epoch), self._system)

    def verify_last(self, commits: Mapping[int, str]) -> None:
        """The same of the last epoch, where `commits` has it."""
        epoch = self.read()
        self.verify(epoch, commits.get(epoch, ""))


def mark_of(opening: Opening) -> HighWater:
    """The high-water mark of a sink that keeps it in the checkpoint.

    It lies under the checkpoint's id: a copy restored under another id starts anew.
    """
    directory = Path(opening.directory) / safe(opening.checkpoint) if opening.directory else None
    if directory is not None:
        make_directory(directory, opening.system)
    mark = HighWater(directory, opening.checkpoint, opening.place, system=opening.system)
    mark.verify_last(opening.commits)
    return mark


def opened(mark: HighWater | None) -> HighWater:
    """The mark, or an error that says that the sink was not opened."""
    if mark is None:
        raise SinkError("the sink was not opened: open() comes first")
    return mark


def highest_marker(directory: Path, system: System) -> int:
    """The largest epoch among the markers of a directory, or 0."""
    try:
        with explained("read", directory):
            names = system.files.list(directory)
    except FileNotFoundError:
        return 0
    return max((int(name) for name in names if _MARKER.fullmatch(name)), default=0)


def _read_mark(path: Path, system: System) -> HighWaterMark | None:
    """What a marker says; None where there is none, or it says nothing."""
    try:
        with explained("read", path):
            return msgspec.json.decode(system.files.read(path), type=HighWaterMark)
    except (FileNotFoundError, msgspec.DecodeError):
        return None  # its name alone raises the mark


def remove_names(directory: Path, system: System, *, up_to: int) -> None:
    """Removes the files named by old epochs, and what a killed writer left of them."""
    try:
        names = system.files.list(directory)
    except FileNotFoundError:
        return
    for name in names:
        found = _MARKER_OR_TEMPORARY.fullmatch(name)
        if found and int(found[1]) <= up_to:
            try:
                system.files.unlink(directory / name)
            except OSError:
                pass  # Somebody else tidies too; what stays is swept next time.
