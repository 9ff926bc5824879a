"""The directory of a state store that has no server: its name, its run, and numbered marks.

Nobody there refuses a late writer. So what counts is named by the log: a *place* is a name inside
the directory, and readers use the one that the last commit has named. A driver that was fenced may
go on to write, but no commit names what it begins.
"""

from __future__ import annotations

import os
from contextlib import suppress

from headrace.errors import InvalidPipeline
from headrace.log import paths
from headrace.plan.state.choice import StateChoice
from headrace.store import files
from headrace.store.store import Store
from headrace.system import System

_RUN = "RUN"
_REMOVED = "removed-"
GONE = "removed"
"""The run of a place that was removed: whoever read there must read again."""


def require_directory(choice: StateChoice, store: Store) -> None:
    """Refuses a checkpoint that is not a directory."""
    if store.local_path() is None:
        raise InvalidPipeline(
            f"state={choice.shown!r} keeps cells in files of their own, and {store.where()} is not "
            'a directory that the driver and all executors share: choose state="segments", or a '
            "checkpoint in a directory"
        )


class StateDirectory:
    """The directory of one checkpoint's cells."""

    def __init__(self, path: str, system: System) -> None:
        self.path, self.system = path, system

    @staticmethod
    def of(choice: StateChoice, store: Store, checkpoint: str) -> StateDirectory:
        """The directory below a checkpoint; its id is part of the name (O6)."""
        require_directory(choice, store)
        path = store.local_path(f"{paths.CELLS}/{checkpoint}-{choice.name}") or ""
        return StateDirectory(path, store.system)

    def at(self, *names: str) -> str:
        """The path of a name in it."""
        return os.path.join(self.path, *names)

    def make(self, *names: str) -> None:
        """Creates it, or a directory in it, durably."""
        files.make_directory(self.at(*names), self.system)

    def list(self, *names: str) -> list[str]:
        """The names in it; none if it is missing. Hidden ones are incomplete, and left out."""
        with files.explained("list", self.at(*names)):
            try:
                found = self.system.files.list(self.at(*names))
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(name for name in found if not name.startswith("."))

    def remove(self, name: str) -> None:
        """Removes a file; does nothing if there is none."""
        files.remove(self.at(name), self.system)

    def discard(self, name: str) -> None:
        """Removes a directory in it: for readers at once, and not file by file, so that no one
        takes a key that is gone already for one that never was."""
        for gone in self.list():  # left by one who died here
            if gone.startswith(_REMOVED):
                self.system.files.remove_tree(self.at(gone))
        aside = self.at(f"{_REMOVED}{name}")
        with suppress(FileNotFoundError), files.explained("remove", self.at(name)):
            self.system.files.rename(self.at(name), aside)
        self.system.files.remove_tree(aside)

    def begin_run(self) -> None:
        """A driver begins to lead here: whoever read before must read again."""
        self.make()
        files.write(self.at(_RUN), self.system.token_hex(8).encode(), self.system)

    def run(self) -> str:
        """The name of this run. A copy that was put in place is another file, so another run."""
        try:
            with files.explained("read", self.at(_RUN)):
                token = self.system.files.read(self.at(_RUN)).decode(errors="replace")
            return f"{token}-{self.system.files.status(self.at(_RUN))[1]}"
        except FileNotFoundError:
            return "none"
