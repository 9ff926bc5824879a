"""Savepoints: the ledger of a past epoch as a file, whose files are kept while it is listed (I10).

A savepoint is durable before the log lists it:

1. What rides in entries of the log (M1) is copied into files of their own, because the log is to
   be trimmed. Copies bear the number of the open epoch: a driver that was paused in its collection
   deletes files of closed epochs (C8).
2. The ledger, which names those files, is written. A crash before 3 leaves orphans.
3. An entry of the log lists the savepoint; collection keeps its files until an entry drops it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.errors import CorruptCheckpoint
from headrace.log import paths
from headrace.log.content import digest_of, map_named, verify
from headrace.log.sealed import seal, unseal
from headrace.plan.control import ControlState, Savepoint
from headrace.plan.epoch import OutboxFile
from headrace.plan.ledger import Ledger
from headrace.plan.rings.classes import SegmentSlice
from headrace.store.store import Store

_MAGIC = b"headrace-savepoint"


def write_savepoint(store: Store, ledger: Ledger, name: str, wall: int) -> Savepoint:
    """Writes the state of the last commit under a name; nothing lists it yet."""
    kept = _without_riders(store, ledger)
    data = seal(_MAGIC, msgspec.json.encode(kept))
    store.make_directory(paths.SAVEPOINTS)
    where = paths.savepoint(ledger.epoch + 1, name, digest_of(data))
    store.write(where, data)
    return Savepoint(name, ledger.epoch, wall, where, ledger.state_bytes())


def read_savepoint(store: Store, savepoint: Savepoint) -> Ledger:
    """The ledger of a savepoint."""
    data = bytes(map_named(store, savepoint.snapshot))
    verify(savepoint.snapshot, data)
    try:
        return msgspec.json.decode(unseal(_MAGIC, data, savepoint.snapshot), type=Ledger)
    except msgspec.DecodeError as error:
        raise CorruptCheckpoint(f"{savepoint.snapshot} cannot be decoded: {error}") from None


def files_of(ledger: Ledger) -> set[str]:
    """Every file that a state without riders consists of, by its whole name."""
    outbox = {f"{paths.OUTBOX}/{file.name}" for files in ledger.outbox.values() for file in files}
    others = ledger.records() | ledger.ring_objects() | ledger.table_files()
    return ledger.segments() | others | outbox


def restored_ledger(saved: Ledger, identity: str) -> Ledger:
    """The ledger of a savepoint, as another checkpoint continues it."""
    # Calls to the outside are logged in directories of the old epochs: they are made again.
    return msgspec.structs.replace(
        saved,
        identity=identity,
        open_plan=None,
        determinants=0,
        given_up={},
        voided_reads={},
        bounds_of_voided={},
        unpassed={},
        unpassed_wall=None,
        unpassed_carried=0,
    )


class SavedFiles:
    """The files of all savepoints that the ledger lists; each savepoint is read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, frozenset[str]] = {}

    def of(self, savepoints: dict[str, Savepoint]) -> frozenset[str]:
        """Their files, with the savepoints themselves."""
        listed = {each.snapshot: each for each in savepoints.values()}
        self._known = {name: files for name, files in self._known.items() if name in listed}
        for name, savepoint in listed.items():
            if name not in self._known:
                files = files_of(read_savepoint(self._store, savepoint))
                self._known[name] = frozenset({name, *files})
        return frozenset().union(*self._known.values())


def self_contained(ledger: Ledger) -> Ledger:
    """A ledger for a copy of its files: what rides is a file of its name, and all is durable."""
    found = _as_files(ledger, lambda name, at: name)
    if ledger.interval.is_durable:
        return found
    slots = {
        name: {
            slot: msgspec.structs.replace(
                state,
                entries=tuple(
                    msgspec.structs.replace(entry, written=False) for entry in state.entries
                ),
            )
            for slot, state in of_name.items()
        }
        for name, of_name in found.slots.items()
    }
    interval = msgspec.structs.replace(found.interval, checkpoint=found.epoch)
    return msgspec.structs.replace(found, slots=slots, interval=interval)


def _without_riders(store: Store, ledger: Ledger) -> Ledger:
    """The same, where the files of riders are written, under names of the open epoch."""
    epoch = ledger.epoch + 1
    written: dict[str, str] = {}

    def file_of(name: str, at: int) -> str:
        """The name of a file with the bytes of a rider."""
        if name not in written:
            directory, _, last = name.rpartition("/")
            _, label, digest = paths.parse_content_name(last)
            suffix = ".arrow" if last.endswith(".arrow") else ""
            new = f"{directory}/{paths.content_name(epoch, label, digest, suffix)}"
            store.write(new, bytes(map_named(store, name, at)))
            written[name] = new
        return written[name]

    return _as_files(ledger, file_of)


def _as_files(ledger: Ledger, file_of: Callable[[str, int], str]) -> Ledger:
    """A copy of a ledger whose riders are files; `file_of` gives the name of each."""

    def slice_of(entry: SegmentSlice) -> SegmentSlice:
        if not entry.at:
            return entry
        name = file_of(entry.segment, entry.at)
        return msgspec.structs.replace(entry, segment=name, at=0)

    def outbox_of(file: OutboxFile) -> OutboxFile:
        if not file.at:
            return file
        name = file_of(f"{paths.OUTBOX}/{file.name}", file.at).rpartition("/")[2]
        return msgspec.structs.replace(file, name=name, at=0, rides=False)

    slots = {
        name: {
            slot: msgspec.structs.replace(state, entries=tuple(map(slice_of, state.entries)))
            for slot, state in of_name.items()
        }
        for name, of_name in ledger.slots.items()
    }
    outbox = {name: [outbox_of(file) for file in files] for name, files in ledger.outbox.items()}
    code = msgspec.structs.replace(ledger.code, probation=None, wish=None, held=None)
    return msgspec.structs.replace(
        ledger,
        slots=slots,
        outbox=outbox,
        open_plan=None,
        control=ControlState(),
        wanted={},
        announced={},
        shards={},
        code=code,
        saved=None,
    )
