"""`StoredSink`: file sinks on a store that has neither directories nor renames (protocol N4).

    out/data/<epoch>-<label>-<digest>.jsonl      rows in final form, written by tasks
    out/_epochs/<epoch>                          the manifest: which of them are the epoch
    out/_identity                                the checkpoint that owns this place

1. A task writes its rows under a name that contains their digest. Nothing of it counts yet.
2. The commit names these files.
3. Delivery is one conditional put of the manifest. It is a function of the commit, so every driver
   that puts it puts the same: there is no claim, no staging and no rename.

Invariants:
- An epoch is visible exactly if its manifest is there. The highest manifest is the high-water mark.
- An epoch without rows has a manifest too. So a copy of the checkpoint, which has other commits, is
  detected by its first epoch at the latest: a manifest with another commit is refused.
- A data file is deleted only if its epoch has a manifest that does not name it (`upkeep`).

Whoever lists `data/` instead of reading manifests gets whole files, but also those of attempts that
were dropped. `headrace.read_output` reads manifests.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from headrace.errors import InvalidPipeline, SinkError
from headrace.failpoints import reach
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.model.sink import Delivery, EncodedFile, Opening, Part, Sink
from headrace.model.values.rows import Rows
from headrace.sinks.high_water import HighWaterMark
from headrace.sinks.row_format import RowFormat
from headrace.sinks.stored.manifest import (
    DATA,
    EPOCHS,
    EpochManifest,
    Manifest,
    ManifestName,
    OutputFile,
    encode_manifest,
)
from headrace.sinks.stored.manifests import Manifests
from headrace.sinks.stored.upkeep import Upkeep
from headrace.store.asking import require_exact_puts
from headrace.store.location import open_store
from headrace.store.places import OnePlace, split_url
from headrace.store.store import Store, checked_name

IDENTITY = "_identity"
TAIL_FILE_BYTES_MAX = 32 * 1024
"""Rows that were staged in the checkpoint stand in the manifest up to this size."""
HEAD_BYTES = 8


class StoredSink(Sink):
    """Epochs as manifests over files of one format."""

    def __init__(self, place: OnePlace | Store, format: RowFormat) -> None:
        self.format = format
        self._given = place if isinstance(place, Store) else None
        if isinstance(place, Store):
            self._location = place.location
        else:
            root, path, options = split_url(place, "the place of a sink")
            if any(mark in path for mark in "*["):
                raise InvalidPipeline(f"{root}/{path}: a sink writes to a prefix, not to a pattern")
            self._location = f"{root}/{path.strip('/')}".rstrip("/") + options
        self._forget()

    def _forget(self) -> None:
        self._opened: Store | None = self._given
        self._water = 0
        self._in_doubt: int | None = None
        """An epoch whose manifest may have been put, or not."""
        self._mark = HighWaterMark("")
        self._upkeep: Upkeep | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks open the store by themselves, and only write data.
        fresh: dict[str, Any] = {
            "_opened": self._given,
            "_water": 0,
            "_in_doubt": None,
            "_mark": HighWaterMark(""),
            "_upkeep": None,
        }
        return {**self.__dict__, **fresh}

    @property
    def store(self) -> Store:
        """The store of this sink's prefix, opened at its first use in this process."""
        if self._opened is None:
            self._opened = open_store(self._location)
        return self._opened

    def own_store(self) -> Store:
        return self.store.below(DATA)

    def encode(self, rows: Rows) -> bytes:
        return self.format.encode(rows)

    def encode_files(self, rows: Rows) -> Sequence[EncodedFile]:
        files = self.format.encode_files(rows)
        for file in files:
            try:
                checked_name(file.directory or DATA)
            except ValueError as error:
                raise SinkError(f"a value of partition_by= cannot be a prefix: {error}") from None
        return files

    def identity(self) -> str:
        return f"store:{self._location}"

    def open(self, opening: Opening) -> None:
        self._forget()
        self._mark = HighWaterMark(opening.checkpoint, "", opening.place)
        for directory in ("", DATA, EPOCHS):
            self.store.make_directory(directory)
        require_exact_puts(self.store)
        self._admit(opening.checkpoint)
        self._water = Manifests(self.store).highest(opening.committed)
        if self._water:
            self.verify(self._water, opening.commits.get(self._water, ""))
        self._upkeep = Upkeep(self.store, has_directories=self.format.has_directories)

    def high_water(self) -> int:
        if self._in_doubt is not None:
            if Manifests(self.store).find(self._in_doubt) is not None:
                self._water = self._in_doubt
            self._in_doubt = None
        return self._water

    def deliver(self, delivery: Delivery) -> None:
        if self._upkeep is None:
            raise SinkError("the sink was not opened: open() comes first")
        if delivery.checkpoint != self._mark.checkpoint:
            raise SinkError(
                f"{self.store.where()} belongs to the checkpoint {self._mark.checkpoint}, not to "
                f"{delivery.checkpoint}"
            )
        if delivery.weak:
            nonce = self.store.system.token_hex(8)
            name = ManifestName(delivery.epoch, weak=nonce).name
            self.store.write(name, self._manifest(delivery, weak=nonce))
            return
        if self._water < delivery.epoch:
            self._publish(delivery)
            self._upkeep.after(delivery.epoch)
        else:
            self.verify(delivery.epoch, delivery.commit)

    def _publish(self, delivery: Delivery) -> None:
        data = self._manifest(delivery)
        reach("before-claim")
        self._in_doubt = delivery.epoch
        if not self.store.put_if_absent(ManifestName(delivery.epoch).name, data):
            # Another driver was faster, or this one before it died; or a copy of the checkpoint.
            self.verify(delivery.epoch, delivery.commit)
        reach("after-publish")
        self._water, self._in_doubt = delivery.epoch, None

    def verify(self, epoch: int, commit: str) -> None:
        found = Manifests(self.store).find(epoch)
        if found is None:
            return
        if found.checkpoint != self._mark.checkpoint:
            raise self._foreign(found.checkpoint)
        mine = HighWaterMark(self._mark.checkpoint, commit, self._mark.place)
        theirs = HighWaterMark(found.checkpoint, found.commit, found.place)
        mine.require(theirs, epoch, self.store.where())

    def close(self) -> None:
        if self._upkeep is not None:
            self._upkeep.wait()

    def _manifest(self, delivery: Delivery, *, weak: str = "") -> bytes:
        """The bytes of an epoch's manifest. They depend only on the delivery."""
        files: list[OutputFile] = []
        tail: list[bytes] = []
        length = 0
        for part in delivery.parts:
            if part.is_own:
                files.append(OutputFile(part.name, part.size, part.rows))
                continue
            for name, data in self._staged(delivery.epoch, part):
                if len(data) > TAIL_FILE_BYTES_MAX:
                    self._write_data(name, data)
                    files.append(OutputFile(name, len(data), part.rows))
                else:
                    files.append(OutputFile(name, len(data), part.rows, length))
                    tail.append(data)
                    length += len(data)
        manifest = EpochManifest(
            delivery.epoch,
            delivery.checkpoint,
            delivery.commit,
            delivery.place,
            files,
            delivery.complete,
            _schema_text(self.format),
            weak,
        )
        return encode_manifest(Manifest([manifest], b"".join(tail)))

    def _staged(self, epoch: int, part: Part) -> list[tuple[str, bytes]]:
        """(name, bytes) of the files in a part that was staged in the checkpoint."""
        data, suffix = part.read(), self.format.suffix
        if not data:
            return []
        if part.name.endswith(suffix):
            return [(part.name, data)]
        whole = [("", data)]
        if self.format.is_split(data[:HEAD_BYTES]):
            whole = list(self.format.split(data))
        return [
            (own_name(directory, epoch, part.label, content, suffix), content)
            for directory, content in whole
        ]

    def _write_data(self, name: str, data: bytes) -> None:
        directory = name.rpartition("/")[0]
        self.store.make_directory(f"{DATA}/{directory}" if directory else DATA)
        self.store.write(f"{DATA}/{name}", data)

    def _admit(self, checkpoint: str) -> None:
        """Refuses the place of another checkpoint; takes one that belongs to no checkpoint."""
        owner = self._owner()
        if owner is None:
            # The owner's name is written before its first epoch: read it after listing epochs.
            if Manifests(self.store).names() and self._owner() is None:
                raise SinkError(
                    f"{self.store.where()} holds epochs, but nothing says of which checkpoint: "
                    "choose a fresh prefix, or delete the old one if its rows are not needed"
                )
            self.store.put_if_absent(IDENTITY, checkpoint.encode())
            owner = self._owner()
        if owner != checkpoint:
            raise self._foreign(owner)

    def _owner(self) -> str | None:
        return owner_of(self.store)

    def _foreign(self, owner: str | None) -> SinkError:
        return SinkError(
            f"{self.store.where()} belongs to the checkpoint {owner}, not to "
            f"{self._mark.checkpoint}: choose a fresh prefix, or delete the old one if its rows "
            "are not needed"
        )


def owner_of(store: Store) -> str | None:
    """The id of the checkpoint that a place belongs to; None if it belongs to none."""
    try:
        return store.read(IDENTITY).decode()
    except FileNotFoundError:
        return None


def own_name(directory: str, epoch: int, label: str, data: bytes, suffix: str) -> str:
    """The name of a data file below `data/`."""
    name = paths.content_name(epoch, label, digest_of(data), suffix)
    return f"{directory}/{name}" if directory else name


def _schema_text(format: RowFormat) -> str:
    if format.schema is None:
        return ""
    return base64.b64encode(format.schema.serialize().to_pybytes()).decode()
