"""`Backup`: a place with backups of a checkpoint, as users see it."""

from __future__ import annotations

import os

from headrace.engine.primitives.backups.restoring import RestoredBackup, restore_backup
from headrace.engine.primitives.backups.taking import BackupBody, backups_in, read_place
from headrace.engine.primitives.backups.verify_backups import verify_backups
from headrace.engine.primitives.verified import Verified
from headrace.errors import InvalidPipeline
from headrace.log import paths
from headrace.plan.state.applied import SEGMENTS
from headrace.plan.state.choice import check_state
from headrace.store.location import checkpoint_store
from headrace.store.store import Store


class Backup:
    """A place with backups of one checkpoint."""

    def __init__(self, place: str | os.PathLike[str] | Store) -> None:
        self._place = checkpoint_store(place)
        identity = read_place(self._place)
        if identity is None:
            raise InvalidPipeline(
                f"{self._place.where()} holds no backups: there is no {paths.BACKUP} file. "
                "`headrace state backup CHECKPOINT TO` makes one"
            )
        self.id = identity.id
        """The id of the checkpoint that these are backups of."""
        self.pipeline = identity.pipeline

    @property
    def backups(self) -> list[BackupBody]:
        """All complete backups, the newest first; `verify` finds those that are damaged."""
        return backups_in(self._place, [])

    def restore(
        self,
        to: str | os.PathLike[str] | Store,
        epoch: int | None = None,
        *,
        state: str = SEGMENTS,
    ) -> RestoredBackup:
        """Restores the newest backup, or that of an epoch, as a new checkpoint in an empty place.

        It gets a new id. Its sinks need fresh places: rows after the backup may be out. `state`:
        where the new checkpoint keeps its state, whatever the old one did.
        """
        return restore_backup(self._place, checkpoint_store(to), epoch, check_state(state))

    def verify(self) -> Verified:
        """Checks every file of every backup by its digest."""
        return verify_backups(self._place)
