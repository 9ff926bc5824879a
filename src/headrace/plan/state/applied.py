"""What the log knows of a state store: which one, how far it is applied, and where (O). Pure.

The log's mark is the last epoch that the store has *and has synced*. The store's own mark may be
higher, and never lower, unless somebody has put an older copy in its place (O4, O6).
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

SEGMENTS = "segments"
"""The name of the default: segments hold the state, and nothing is applied."""


class StoreMark(msgspec.Struct, frozen=True):
    """What a commit says of the state store."""

    epoch: int
    """The log's mark."""
    place: str = ""
    """Where the cells are, for a store that needs such a name."""


class AppliedState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state store of a checkpoint, in its ledger."""

    backend: str = ""
    """As `state=` names it, without user and password; "" as long as nothing was planned."""
    epoch: int = 0
    """The log's mark."""
    place: str = ""
    names: dict[str, str] = {}
    """Computation -> its name in the store, if that is another one."""
    id: str = ""
    """The id under which the store has the cells; "": the checkpoint's own."""

    @property
    def copies(self) -> bool:
        """Whether cells are copied into a store."""
        return self.backend not in ("", SEGMENTS)

    def marked(self, mark: StoreMark | None) -> AppliedState:
        """After a commit with this mark; the mark is never lowered, and no older place counts."""
        if mark is None or mark.epoch < self.epoch:
            return self
        return msgspec.structs.replace(self, epoch=mark.epoch, place=mark.place)

    def named(self, computation: str) -> str:
        """The name of a computation in the store."""
        return self.names.get(computation, computation)

    def renamed(self, old: str, new: str) -> AppliedState:
        """After a computation got another name; its cells stay where they are.

        The old name still stands for them: epochs before may have to be applied again.
        """
        if not self.copies:
            return self
        stored = self.named(old)
        return msgspec.structs.replace(self, names={**self.names, old: stored, new: stored})

    def forgotten(self, computation: str, epoch: int) -> AppliedState:
        """After all state of a computation was dropped: what follows has another name there."""
        if not self.copies:
            return self
        stored, fresh = self.named(computation), f"{computation}@{epoch}"
        if stored == fresh or stored.startswith(f"{fresh}@"):
            fresh = f"{stored}@{epoch}"  # an import in between is of the same epoch
        return msgspec.structs.replace(self, names={**self.names, computation: fresh})

    def imported(self, computation: str, epoch: int, token: str) -> AppliedState:
        """What an import writes to a server, where nothing has `token` in its name yet.

        It counts when the log says so. An import that was interrupted has left cells, and a mark,
        in the store: nothing reads them. Before the first epoch the mark must not rise either.
        """
        if not epoch:
            return msgspec.structs.replace(self, id=token)
        names = {**self.names, computation: f"{computation}~{token}"}
        return msgspec.structs.replace(self, names=names)

    def is_forgotten(self, computation: str, epoch: int) -> bool:
        """Whether what an epoch wrote of a computation was dropped: it must not be applied again.

        A computation that has the name of its store by itself is known by that name, too.
        """
        stored = self.named(computation)
        is_fresh = stored.startswith(f"{computation}@") and stored not in self.names
        return is_fresh and epoch <= int(stored.rpartition("@")[2])

    def is_taken(self, computation: str, known: Container[str]) -> bool:
        """Whether a new computation would read the cells of one that was renamed."""
        stored = self.named(computation)
        others = [name for name, each in self.names.items() if each == stored]
        return computation not in known and any(name in known for name in others)


class AppliedBase(msgspec.Struct, frozen=True):
    """What a task must know of the state store."""

    epoch: int
    """The log's mark: later epochs are read from their segments first."""
    place: str
    run: str
    """The run in which the store has all epochs up to the mark (O5)."""
    names: dict[str, str] = {}
    id: str = ""
    """As in `AppliedState`."""


def unapplied_over(epoch: int, synced: int, limit: int) -> bool:
    """Whether so many epochs are unapplied that the next one has to wait (O7)."""
    return epoch - synced > limit
