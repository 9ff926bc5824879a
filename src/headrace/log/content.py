"""Files named by their content: the name ends with a digest, which proves the bytes.

Most are files of the checkpoint; small ones ride in an entry of the log (protocol M1). `map_named`
reads both. A large file may be checked in parts (`blocks.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from headrace.errors import CorruptCheckpoint, StoreError
from headrace.log import paths
from headrace.log.blocks import BlockCheck, table_digest, table_in, whole_digest
from headrace.log.identity import require_present
from headrace.log.riders import map_rider
from headrace.store.store import Store


def digest_of(data: bytes | pa.Buffer) -> str:
    """The digest that names a file."""
    return whole_digest(data)


def verify(name: str, data: bytes | pa.Buffer) -> None:
    """Refuses a file whose bytes do not match the digest in its name."""
    _compare(name, data, digest_of(data))


def verify_in_parts(name: str, data: pa.Buffer) -> BlockCheck | None:
    """Refuses a file whose table of blocks does not match its name; the blocks are still to be
    checked. A file without a table is checked as a whole; then the answer is None."""
    table = table_in(data)
    if table is None:
        verify(name, data)
        return None
    _compare(name, data, table_digest(data, table))
    return BlockCheck(name, data, table)


def _compare(name: str, data: bytes | pa.Buffer, found: str) -> None:
    try:
        expected = paths.digest_in(name)
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from None
    if found != expected:
        raise CorruptCheckpoint(
            f"{name} is damaged: its {len(data):,} bytes have digest {found}, its name says "
            f"{expected}. Restore the file from a copy; nothing of it has been read"
        )


def first_damaged(files: Mapping[str, bytes]) -> str | None:
    """A file whose bytes do not match the digest in its name; None if all do."""
    for name, data in files.items():
        try:
            verify(name, data)
        except CorruptCheckpoint:
            return name
    return None


def write_named(store: Store, name: str, data: bytes) -> None:
    """Writes a file that a plan or a commit will name; StoreError if its directory is missing.

    Then the whole checkpoint is unavailable: it is retried.
    """
    try:
        store.write(name, data)
    except FileNotFoundError as error:
        raise StoreError(f"cannot write {store.where(name)}: {error}") from error


def map_named(store: Store, name: str, at: int = 0) -> pa.Buffer:
    """The bytes of a file that a commit names; `at`: the log position in which it rides, or 0.

    A file is reported as missing only if it is missing twice, and the checkpoint was present in
    between. The whole checkpoint may have been unavailable at the first try: that is a transient
    error.
    """
    try:
        return _map(store, name, at)
    except FileNotFoundError:
        require_present(store)
    try:
        return _map(store, name, at)
    except FileNotFoundError:
        raise CorruptCheckpoint(
            f"{_where(store, name, at)} is missing from the checkpoint, though a commit names it; "
            "restore the file, or begin again from a backup"
        ) from None


def _map(store: Store, name: str, at: int) -> pa.Buffer:
    if not at:
        return store.map(name)
    found = store.near_copy(name)
    if found is None:
        found = map_rider(store, name, at)
        store.keep_near(name, found)
    return found


def _where(store: Store, name: str, at: int) -> str:
    """The file that people must look for."""
    return store.where(paths.log_entry(at, store.system.limits) if at else name)
