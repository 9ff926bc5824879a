"""What a verification has found: `Verified`, as users see it."""

from __future__ import annotations

import msgspec

SHOWN_MAX = 20
"""How many files of one kind a note names."""


class Problem(msgspec.Struct, frozen=True):
    """Damage: which file, and what is wrong with it."""

    file: str
    what: str


class Verified(msgspec.Struct):
    """What a verification has found."""

    location: str
    pipeline: str = ""
    epoch: int = 0
    files: int = 0
    """How many files, and entries of the log, were checked."""
    bytes: int = 0
    cells: int = 0
    """How many cells of a state store were read."""
    problems: list[Problem] = []
    orphans: list[str] = []
    """Files of closed epochs that nothing names; collection deletes them."""
    orphan_bytes: int = 0
    notes: list[str] = []

    @property
    def is_whole(self) -> bool:
        """Whether there is no damage."""
        return not self.problems


def shown_names(names: list[str]) -> str:
    """Some names as text; the first of them if there are many."""
    more = f" and {len(names) - SHOWN_MAX:,} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more
