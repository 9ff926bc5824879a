"""The last epoch that a sink delivered, kept so that it only rises (PROTOCOL F2).

One marker file per epoch, which holds the checkpoint's id, put if absent and
read as the maximum: a paused driver that wakes can add an old marker, never
lower the mark. Older markers go only after a higher one is on disk, and the
newest few always stay, because a directory read while names come and go may
miss one of them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from headrace.errors import SinkError
from headrace.log.files import explained, make_directory, put_if_absent, sync_directory
from headrace.log.paths import safe
from headrace.model.sink import Opening

MARKERS_KEPT = 16

_MARKER = re.compile(r"\d{12}")
_MARKER_OR_TEMPORARY = re.compile(r"\.?(\d{12})(\.[0-9a-f]+\.tmp)?")


def epoch_name(epoch: int) -> str:
    """An epoch as a name that sorts."""
    return f"{epoch:012d}"


class HighWater:
    """A high-water mark in a directory; in this object where there is no directory."""

    def __init__(self, directory: str | Path | None, checkpoint: str) -> None:
        self._directory = None if directory is None else Path(directory)
        self._checkpoint = checkpoint
        self._epoch = 0
        if self._directory is not None:
            make_directory(self._directory)

    def read(self) -> int:
        """The last epoch delivered, or 0."""
        if self._directory is None:
            return self._epoch
        return highest_marker(self._directory)

    def advance(self, epoch: int) -> None:
        """Says, durably, that everything up to `epoch` was delivered."""
        if self._directory is None:
            self._epoch = max(self._epoch, epoch)
            return
        data = self._checkpoint.encode()
        if not put_if_absent(self._directory / epoch_name(epoch), data):
            # Another driver put it, perhaps an instant ago: make sure that it stays.
            sync_directory(self._directory)
        remove_names(self._directory, up_to=epoch - MARKERS_KEPT)


def mark_of(opening: Opening) -> HighWater:
    """The high-water mark of a sink that keeps it in the checkpoint.

    It lies under the checkpoint's id: a copy restored under another id starts anew.
    """
    if not opening.directory:
        return HighWater(None, opening.checkpoint)
    return HighWater(Path(opening.directory) / safe(opening.checkpoint), opening.checkpoint)


def opened(mark: HighWater | None) -> HighWater:
    """The mark, or an error that says that the sink was not opened."""
    if mark is None:
        raise SinkError("the sink was not opened: open() comes first")
    return mark


def highest_marker(directory: Path) -> int:
    """The largest epoch among the markers of a directory, or 0."""
    try:
        with explained("read", directory):
            names = os.listdir(directory)
    except FileNotFoundError:
        return 0
    return max((int(name) for name in names if _MARKER.fullmatch(name)), default=0)


def remove_names(directory: Path, *, up_to: int) -> None:
    """Removes the files named by old epochs, and what a killed writer left of them."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    for name in names:
        found = _MARKER_OR_TEMPORARY.fullmatch(name)
        if found and int(found[1]) <= up_to:
            try:
                os.unlink(directory / name)
            except OSError:
                pass  # Somebody else tidies too; what stays is swept next time.
