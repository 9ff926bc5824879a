"""Manifests: which files, and which rows in the manifest itself, are an epoch of a sink.

    _epochs/000000000042                  the manifest of epoch 42
    _epochs/000000000064.000000000064     one of the 64 epochs that end with epoch 64, merged
    _epochs/000000000064.000000000064+000001   the same epochs, after their files were compacted
    _epochs/000000000042-weak-<nonce>     rows shown before the commit (at-least-once)

A manifest is a line of JSON and a tail of bytes, under one checksum. The tail holds files that are
too small for an object of their own. The merged form has the same content as those it replaces.

Names sort so that a merged manifest comes after all that it replaces, and a larger one after a
smaller one. So a listing in the order of names finds every epoch, even if epochs are merged while
it runs: what vanishes behind it has appeared in front of it.

A compaction (`compacting`) gives its manifests a number that is higher than every other. Of all
manifests that have an epoch the one with the highest number counts, and among these the largest: a
merge that began before the compaction cannot bring back files that the compaction has replaced.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from headrace.errors import CorruptCheckpoint
from headrace.log.sealed import seal, unseal_with_tail

EPOCHS = "_epochs"
DATA = "data"
COMPACTED = "compacted"
_MAGIC = b"headrace-output"
_NAME = re.compile(r"(\d{12})(?:\.(\d{12}))?(?:-weak-([0-9a-f]+))?(?:\+(\d{6}))?")


class OutputFile(msgspec.Struct, frozen=True, array_like=True):
    """A file of an epoch, in its final form."""

    name: str
    """Its name below `data/`, or below `compacted/`."""
    size: int
    rows: int
    offset: int | None = None
    """Where its bytes begin in the tail of its manifest; None: it is an object of its own."""
    first: int | None = None
    """Only `rows` rows of a compacted file are meant, from this one on; None: a whole file."""
    rows_in_file: int = 0
    """How many rows a compacted file has."""

    @property
    def place(self) -> str:
        """The name of its object."""
        return f"{DATA if self.first is None else COMPACTED}/{self.name}"


class EpochManifest(msgspec.Struct, frozen=True):
    """What an epoch consists of: a function of its commit."""

    epoch: int
    checkpoint: str
    commit: str
    place: str
    """Where the checkpoint lay, for messages."""
    files: list[OutputFile]
    complete: bool = True
    """False if the epoch's rows are left out, because they may have arrived (at-most-once)."""
    schema: str = ""
    """The Arrow schema that the user gave to the sink, serialized, in base64."""
    weak: str = ""
    """The nonce of a weak delivery, shown before the commit; "" of the epoch itself."""


class ManifestName(msgspec.Struct, frozen=True, order=True):
    """The name of a manifest, taken apart."""

    last: int
    count: int = 1
    weak: str = ""
    """The nonce of a weak delivery."""
    rewrite: int = 0
    """The number of the compaction that made it; 0: none."""

    @property
    def weight(self) -> tuple[int, int]:
        """Of two manifests with one epoch the one with more weight counts."""
        return (self.rewrite, self.count)

    @property
    def first(self) -> int:
        """The first epoch in it."""
        return self.last - self.count + 1

    @property
    def name(self) -> str:
        """The name of the object."""
        found = f"{EPOCHS}/{self.last:012d}"
        if self.weak:
            return f"{found}-weak-{self.weak}"
        if self.count > 1:
            found = f"{found}.{self.count:012d}"
        return f"{found}+{self.rewrite:06d}" if self.rewrite else found

    @staticmethod
    def parse(name: str) -> ManifestName | None:
        """The parts of a name without its directory; None if it is not a manifest."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        return ManifestName(int(found[1]), int(found[2] or 1), found[3] or "", int(found[4] or 0))


class Manifest(msgspec.Struct, frozen=True):
    """The content of one object below `_epochs/`."""

    epochs: list[EpochManifest]
    tail: bytes = b""

    def bytes_of(self, file: OutputFile) -> bytes:
        """The bytes of a file that stands in the tail."""
        start = file.offset or 0
        return self.tail[start : start + file.size]

    def find(self, epoch: int) -> EpochManifest | None:
        """An epoch in it, without its weak deliveries."""
        found = (each for each in self.epochs if each.epoch == epoch and not each.weak)
        return next(found, None)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[EpochManifest]).decode


def encode_manifest(manifest: Manifest) -> bytes:
    """A manifest as bytes."""
    return seal(_MAGIC, _encode(manifest.epochs), manifest.tail)


def decode_manifest(data: bytes, where: str) -> Manifest:
    """The manifest in some bytes; CorruptCheckpoint if they are damaged."""
    body, tail = unseal_with_tail(_MAGIC, data, where)
    try:
        return Manifest(_decode(body), bytes(tail))
    except msgspec.DecodeError as error:
        raise CorruptCheckpoint(f"{where} cannot be decoded: {error}") from None


def joined(manifests: Sequence[Manifest]) -> Manifest:
    """One manifest with the epochs of several, in order."""
    epochs: list[EpochManifest] = []
    tails: list[bytes] = []
    base = 0
    for manifest in manifests:
        for epoch in manifest.epochs:
            files = [_moved(file, base) for file in epoch.files]
            epochs.append(msgspec.structs.replace(epoch, files=files))
        tails.append(manifest.tail)
        base += len(manifest.tail)
    return Manifest(epochs, b"".join(tails))


def _moved(file: OutputFile, by: int) -> OutputFile:
    if file.offset is None:
        return file
    return msgspec.structs.replace(file, offset=file.offset + by)
