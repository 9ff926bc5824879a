"""Verifies a place with backups: each backup, and every file that one names, by its digest."""

from __future__ import annotations

from headrace.engine.primitives.backups.taking import read_backup, read_place
from headrace.engine.primitives.verified import Problem, Verified
from headrace.errors import CorruptCheckpoint, IncompatibleState
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.store.store import Store


def verify_backups(place: Store) -> Verified:
    """Checks everything in a place with backups."""
    found = Verified(place.where())
    try:
        identity = read_place(place)
        found.pipeline = "" if identity is None else identity.pipeline
    except (CorruptCheckpoint, IncompatibleState) as error:
        found.problems.append(Problem(paths.BACKUP, str(error)))
        return found
    wanted: dict[str, str] = {}
    for name in place.list(paths.BACKUPS):
        where = f"{paths.BACKUPS}/{name}"
        try:
            body = read_backup(place, where)
        except (CorruptCheckpoint, IncompatibleState) as error:
            found.problems.append(Problem(where, str(error)))
            continue
        found.files += 1
        found.epoch = max(found.epoch, body.epoch)
        wanted |= {name: copy.digest for name, copy in body.files.items()}
        wanted |= {paths.copied(copy.digest): copy.digest for copy in body.workspaces.values()}
    for name, digest in sorted(wanted.items()):
        try:
            data = place.map(name)
        except FileNotFoundError:
            found.problems.append(Problem(name, "it is missing, though a backup names it"))
            continue
        found.files += 1
        found.bytes += len(data)
        if digest_of(data) != digest:
            what = f"its {len(data):,} bytes do not have the digest that the backup says"
            found.problems.append(Problem(name, what))
    for info in place.walk():
        own = info is None or info.name in wanted or info.name == paths.BACKUP
        if info is not None and not own and not info.name.startswith(f"{paths.BACKUPS}/"):
            found.orphans.append(info.name)
            found.orphan_bytes += info.size
    return found


def is_backup_place(place: Store) -> bool:
    """Whether a place is one for backups, whether or not its files are whole."""
    return paths.BACKUP in place.list("")
