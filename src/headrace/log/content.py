"""Files named by their content: the name ends with a digest, which proves the bytes."""

from __future__ import annotations

import pyarrow as pa
import xxhash

from headrace.errors import CorruptCheckpoint
from headrace.log import paths
from headrace.log.identity import require_present
from headrace.store.store import Store


def digest_of(data: bytes | pa.Buffer) -> str:
    """The digest that names a file."""
    return xxhash.xxh3_128_hexdigest(data)


def verify(name: str, data: bytes | pa.Buffer) -> None:
    """Refuses a file whose bytes do not match the digest in its name."""
    try:
        _, _, expected = paths.parse_content_name(name.rsplit("/", 1)[-1])
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from None
    found = digest_of(data)
    if found != expected:
        raise CorruptCheckpoint(
            f"{name} is damaged: its {len(data):,} bytes have digest {found}, its name says "
            f"{expected}. Restore the file from a copy; nothing of it has been read"
        )


def map_named(store: Store, name: str) -> pa.Buffer:
    """The bytes of a file that a commit names.

    A file is reported as missing only if it is missing twice, and the checkpoint was present in
    between. The whole checkpoint may have been unavailable at the first try: that is a transient
    error.
    """
    try:
        return store.map(name)
    except FileNotFoundError:
        require_present(store)
    try:
        return store.map(name)
    except FileNotFoundError:
        raise CorruptCheckpoint(
            f"{store.where(name)} is missing from the checkpoint, though a commit names it; "
            "restore the file, or begin again from a backup"
        ) from None
