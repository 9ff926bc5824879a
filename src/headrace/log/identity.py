"""The identity of a checkpoint: the pipeline that owns it, and a unique id."""

from __future__ import annotations

import msgspec

from headrace.errors import CorruptCheckpoint, IncompatibleState, StoreError
from headrace.log import paths
from headrace.log.sealed import seal, unseal
from headrace.store.store import Store

_MAGIC = b"headrace-checkpoint"


class Identity(msgspec.Struct, frozen=True):
    """The content of the file IDENTITY."""

    id: str
    pipeline: str


def read_identity(store: Store) -> Identity | None:
    """The identity of a checkpoint; None if there is no checkpoint."""
    data = _read(store)
    if data is None and store.list(paths.LOG):
        # Another driver may have created this checkpoint between the two reads. The identity is
        # older than the log, so a reader that has seen a log finds it.
        data = _read(store)
        if data is None:
            raise CorruptCheckpoint(
                f"{store.where()}: there is a log but no {paths.IDENTITY} file; "
                "restore it from a copy, or give the restore or import again that was interrupted"
            )
    if data is None:
        return None
    body = unseal(_MAGIC, data, store.where(paths.IDENTITY))
    try:
        return msgspec.json.decode(body, type=Identity)
    except msgspec.DecodeError as error:
        raise CorruptCheckpoint(f"{paths.IDENTITY} cannot be decoded: {error}") from None


def claim_identity(store: Store, pipeline: str) -> Identity:
    """The identity of this pipeline's checkpoint, created if it is new."""
    found = read_identity(store)
    if found is None:
        store.make_directory("")
        new = Identity(store.system.token_hex(8), pipeline)
        found = put_identity(store, new)
    if found is None or found.pipeline != pipeline:
        owner = found.pipeline if found else "no pipeline"
        raise IncompatibleState(
            f"the checkpoint {store.where()} belongs to pipeline {owner!r}, not {pipeline!r}: "
            "choose another checkpoint= directory"
        )
    return found


def require_present(store: Store, checkpoint: str = "") -> None:
    """StoreError if the checkpoint is not there: no other error that follows is meaningful.

    `checkpoint` is its id, where that is known. An identity that cannot be decoded counts as not
    there, too: a filesystem or a bucket that comes and goes may show anything.
    """
    try:
        identity = read_identity(store)
    except CorruptCheckpoint as error:
        raise StoreError(f"the checkpoint {store.where()} cannot be read: {error}") from error
    if identity is None or (checkpoint and identity.id != checkpoint):
        raise StoreError(
            f"the checkpoint {store.where()} is not there: is it still mounted, at the same path?"
        )


def replace_identity(store: Store, new: Identity) -> None:
    """Gives a checkpoint the id that its log says it has, after a restore."""
    store.write(paths.IDENTITY, seal(_MAGIC, msgspec.json.encode(new)))


def put_identity(store: Store, new: Identity) -> Identity | None:
    """Puts an identity where there is none; returns the one that is there.

    Who put it does not matter, so the answer of the put does not either: it is read back, also
    where the put failed, because it may have arrived all the same.
    """
    data = seal(_MAGIC, msgspec.json.encode(new))
    try:
        if store.put_if_absent(paths.IDENTITY, data):
            return read_identity(store)
    except (OSError, StoreError):
        if read_identity(store) is None:
            raise
    store.sync("")  # a name that is only visible may vanish again
    return read_identity(store)


def _read(store: Store) -> bytes | None:
    try:
        return store.read(paths.IDENTITY)
    except FileNotFoundError:
        return None
