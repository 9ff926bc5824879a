"""Tells a checkpoint that is new from one whose log is missing.

A driver writes nothing but the identity and empty directories before its generation is in the log
(A4). So where the log has no entry, a file of an epoch is no trace of a crash: somebody has taken
the log away, or a restore or an import did not come to its end.
"""

from __future__ import annotations

from headrace.errors import CorruptCheckpoint
from headrace.log import paths
from headrace.log.epochlog import EpochLog
from headrace.store.store import Store

_OF_EPOCHS = (paths.STATE, paths.READ, paths.RINGS, paths.TABLES, paths.OUTBOX, paths.STAGED,
              paths.SAVEPOINTS)  # fmt: skip


def without_log(store: Store) -> str:
    """What is wrong with a checkpoint whose log has no entry; "" if it is as good as new."""
    if EpochLog(store).last_position():
        return ""
    names = set(store.list(""))
    found = next((name for name in (paths.LEASE, paths.STATUS) if name in names), "")
    for directory in _OF_EPOCHS:
        if not found and directory in names:
            infos = (info.name for info in store.walk(directory) if info is not None)
            found = next((name for name in infos if _epoch_of(name)), "")
    # Another driver may have begun since the log was looked at, which comes before its files.
    if not found or EpochLog(store).last_position():
        return ""
    return (
        f"the log is missing: it has no entry, and {found} is there, which no driver writes before "
        "its first entry. Put back the log from a copy; if a restore or an import was interrupted, "
        "give it again; to begin anew, empty the whole place"
    )


def refuse_without_log(store: Store) -> None:
    """CorruptCheckpoint if the log is missing: a driver would begin anew at epoch 1."""
    if said := without_log(store):
        raise CorruptCheckpoint(f"{store.where()}: {said}; nothing has been changed")


def _epoch_of(name: str) -> int:
    """The epoch in the name of a file, 0 if it has none: files of a restore may be of any."""
    try:
        return paths.parse_content_name(name.rpartition("/")[2])[0]
    except ValueError:
        return 0
