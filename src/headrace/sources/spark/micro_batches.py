"""Runs a streaming query and spools its rows, through `foreachBatch` (protocol H).

Spark runs the query and keeps its own checkpoint below ours, which is used only to deliver
micro-batches again. The spool is what counts: every micro-batch is written as Parquet, synced,
and then named by a marker, before a position in it is planned.

    query                                      the id of the one query that may write here
    spark/                                     Spark's own checkpoint (`batch_files`)
    batches/000000000007.<query>.<nonce>/      the rows of micro-batch 7
    batches/000000000007.json                  its marker, put once

A micro-batch begins at the position where the one before it ended; its rows are in the order
of the files' names. Older markers have no `base`: their micro-batch begins at its id * 2**40.

1. A micro-batch with a marker of the same query and the same Spark offsets is skipped. One
   with other offsets is refused: ids have started again from 0, and skipping would lose its rows.
2. The next micro-batch must be the one after the last marker; otherwise the spool has lost some.
3. The callback blocks Spark while more than `ahead` micro-batches wait, and it does so after
   spooling, never before: spooled rows can be planned, so the two cannot wait for each other.
4. Rows are deleted when no retained epoch reads them, markers long after: Spark may deliver a
   micro-batch again that was read before Spark recorded it as done.
5. Spark's checkpoint is durable before the marker is put: after a power loss Spark must not
   plan other offsets for a micro-batch that is spooled.
"""

from __future__ import annotations

import os
import secrets
import threading
from typing import Any

import msgspec

from headrace.errors import SourceError, StoreError
from headrace.sources.files.sequence import Extent
from headrace.sources.spark.batch_files import batch_files
from headrace.sources.spark.spool import spark_path
from headrace.store.store import Store

POSITIONS_PER_BATCH_BEFORE = 2**40
# Spark delivers only its latest micro-batch again; older markers explain a refusal.
MARKERS_KEPT = 100
CHECKPOINTS_KEPT = 10
"""For how many micro-batches the files of Spark's checkpoint are kept in a store."""
STOP_SECONDS_MAX = 30.0
_BATCHES = "batches"
_QUERY = "query"


class BatchMarker(msgspec.Struct, frozen=True):
    """States that a micro-batch is spooled, from which offsets, and where its rows lie."""

    query: str
    batch: int
    offsets: str
    extents: list[Extent]
    base: int | None = None
    """The position of its first row; older markers have none."""
    spark: dict[str, str] = {}
    """The files of Spark's checkpoint before this micro-batch ran, and where they can be restored
    from; empty where Spark's own files are durable."""

    @property
    def end(self) -> int:
        """The position after its last row."""
        if self.extents:
            return self.extents[-1].end
        return self.batch * POSITIONS_PER_BATCH_BEFORE if self.base is None else self.base

    @property
    def folder(self) -> str:
        """The directory of its rows; none where it has no rows."""
        return os.path.dirname(self.extents[0].name) if self.extents else ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(BatchMarker).decode


class QueryRun:
    """One run of the query, on the driver. Spark calls `_on_batch` from threads of its own."""

    def __init__(self, store: Store, ahead: int, *, ends: bool) -> None:
        """Markers are files of the store; `batch_files` says where the rest lies."""
        self.ended = False
        self._store = store
        self._files = batch_files(store)
        self._checkpoint = self._files.checkpoint
        self._ahead = ahead
        self._ends = ends
        self._changed = threading.Condition()
        self._markers: dict[int, BatchMarker] = {}
        self._waiting: set[int] = set()
        """Micro-batches that no commit has read to their end; too many of them block Spark."""
        self._kept: set[int] = set()
        """Micro-batches whose rows are not deleted yet."""
        self._error: str | None = None
        self._stopping = False
        self._query: Any = None
        self._watcher: threading.Thread | None = None

    def start(self, frame: Any, trigger: dict[str, Any]) -> None:
        """Loads the markers of the spool, and starts the query."""
        self._store.make_directory(_BATCHES)
        self._load()
        last = max(self._markers, default=-1)
        if last >= 0:
            try:
                self._files.restore(self._markers[last].spark)
            except FileNotFoundError as error:
                raise self._lost(f"{error} is missing") from error
        self._checkpoint.sweep(last)
        self._check_query(self._spark_id())
        if self._fed_by() is not None and not self._markers:
            raise self._lost("nothing is left of what was spooled")
        writer = frame.writeStream.foreachBatch(self._on_batch).option(
            "checkpointLocation", spark_path(self._checkpoint.directory)
        )
        try:
            self._query = (writer.trigger(**trigger) if trigger else writer).start()
        except Exception as error:
            raise SourceError(f"Spark cannot start the streaming query: {_brief(error)}") from error
        self._watcher = threading.Thread(target=self._watch, name="headrace-query", daemon=True)
        self._watcher.start()

    def stop(self) -> None:
        """Releases the callback and stops the query."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._query is not None:
            self._query.stop()
        if self._watcher is not None:
            self._watcher.join(STOP_SECONDS_MAX)
        self._files.close()

    def check(self) -> None:
        """Raises the error that ended the query, if any. It is called often: no call to Spark."""
        if self._error is not None:
            raise SourceError(self._error)
        if self.ended and not self._ends and not self._stopping:
            raise SourceError("the streaming query was stopped from outside: start again")

    def caught_up(self) -> bool:
        """Whether Spark has looked at its source, and all rows that it found are spooled."""
        if self.ended or self._query is None:
            return True
        status = self._query.status
        # "Initializing sources" at first, then "Getting offsets" and "Processing new data".
        waits = str(status["message"]).startswith("Waiting")
        return waits and not status["isDataAvailable"] and not status["isTriggerActive"]

    def extents(self) -> list[Extent]:
        """The places of all rows that are spooled, in order."""
        with self._changed:
            return [e for _, marker in sorted(self._markers.items()) for e in marker.extents]

    def settle(self, position: int) -> None:
        """Micro-batches that end before `position` no longer count as waiting."""
        with self._changed:
            done = [b for b in self._waiting if self._markers[b].end <= position]
            self._waiting.difference_update(done)
            self._changed.notify_all()

    def release(self, position: int) -> None:
        """Deletes the rows of micro-batches that end before `position`."""
        with self._changed:
            done = [self._markers[b] for b in self._kept if self._markers[b].end <= position]
            self._kept.difference_update(marker.batch for marker in done)
            old = [b for b in sorted(self._markers)[:-MARKERS_KEPT] if b not in self._kept]
            for batch in old:
                del self._markers[batch]
        for marker in done:
            self._files.delete(marker.folder)
        for batch in old:
            self._store.delete(_marker_name(batch))

    def _on_batch(self, frame: Any, batch: int) -> None:
        try:
            self._take(frame, batch)
        except Exception as error:
            ours = isinstance(error, SourceError)
            self._fail(str(error) if ours else f"the streaming query failed: {_brief(error)}")
            raise
        with self._changed:
            while len(self._waiting) > self._ahead and not self._stopping:
                self._changed.wait()

    def _take(self, frame: Any, batch: int) -> None:
        query = self._spark_id()
        self._check_query(query)
        offsets = self._checkpoint.offsets(batch)
        known = self._markers.get(batch)
        expected = max(self._markers) + 1 if self._markers else 0
        if known is None and batch > expected:
            raise self._lost(f"Spark delivers micro-batch {batch}, but {expected} is the next")
        if known is None and batch == expected:
            known = self._spool(frame, batch, query, offsets)
            # Written after the first marker: a `query` file without any marker means that the
            # spool was deleted.
            if self._fed_by() is None:
                self._store.put_if_absent(_QUERY, query.encode())
        if known is None or known.offsets != offsets:
            raise SourceError(
                f"Spark delivers micro-batch {batch} a second time with other rows: its checkpoint "
                f"{self._checkpoint} was deleted or rolled back, and its numbers started again "
                "from 0. Put it back, or start a new checkpoint"
            )

    def _spool(self, frame: Any, batch: int, query: str, offsets: str) -> BatchMarker:
        folder = f"{_BATCHES}/{batch:012d}.{query}.{secrets.token_hex(4)}"
        base = self._markers[batch - 1].end if batch else 0
        extents = self._files.write(frame, folder, base)
        kept = self._files.keep_checkpoint(batch)
        marker = BatchMarker(query, batch, offsets, extents, base, kept)
        if not self._put(_marker_name(batch), _encode(marker)):
            # A driver that will soon be fenced has spooled the same micro-batch first.
            marker = _decode(self._store.read(_marker_name(batch)))
        with self._changed:
            self._markers[batch] = marker
            if marker.extents:
                self._waiting.add(batch)
                self._kept.add(batch)
        self._forget_checkpoint(batch)
        return marker

    def _forget_checkpoint(self, batch: int) -> None:
        """Deletes files of Spark's checkpoint that only a marker of long ago names."""
        old = self._markers.get(batch - CHECKPOINTS_KEPT)
        if old is not None and old.spark:
            later = range(batch - CHECKPOINTS_KEPT + 1, batch + 1)
            named = {
                name
                for b in later
                if b in self._markers
                for name in self._markers[b].spark.values()
            }
            self._store.delete_all(sorted(set(old.spark.values()) - named))

    def _put(self, name: str, data: bytes) -> bool:
        """Puts a marker; False if the one that counts must be read, because it may be another."""
        try:
            return self._store.put_if_absent(name, data)
        except StoreError:
            # It may have arrived. If not, the batch fails, and Spark delivers it again.
            try:
                self._store.read(name)
            except FileNotFoundError:
                pass
            else:
                return False
            raise

    def _load(self) -> None:
        """Loads all markers, and deletes directories that no marker names."""
        names = self._store.list(_BATCHES)
        for name in names:
            if not name.endswith(".json"):
                continue
            try:
                marker = _decode(self._store.read(f"{_BATCHES}/{name}"))
            except msgspec.MsgspecError as error:
                raise self._lost(f"{name} is damaged ({error})") from error
            self._markers[marker.batch] = marker
            if marker.extents and self._files.has(marker.folder):
                self._waiting.add(marker.batch)
                self._kept.add(marker.batch)
        named = {os.path.basename(marker.folder) for marker in self._markers.values()}
        for name in names:
            if not name.endswith(".json") and name not in named:
                self._files.delete(f"{_BATCHES}/{name}")

    def _watch(self) -> None:
        try:
            self._query.awaitTermination()
        except Exception as error:
            self._fail(f"the streaming query failed: {_brief(error)}")
        self.ended = True

    def _fail(self, message: str) -> None:
        """Keeps the first reason: later errors of Spark only wrap it."""
        if self._error is None and not self._stopping:
            self._error = message

    def _lost(self, found: str) -> SourceError:
        remedy = "Put it back, or start a new checkpoint"
        return SourceError(
            f"{found}: the spool {self._store.where(_BATCHES)} has lost rows. {remedy}"
        )

    def _check_query(self, sparks: str) -> None:
        ours = self._known_id()
        if ours is not None and ours != sparks:
            found = f"query {sparks}" if sparks else "nothing"
            raise SourceError(
                f"this checkpoint was fed by the streaming query {ours}, but Spark's checkpoint "
                f"{self._checkpoint} holds {found}: it was deleted or replaced, and a new query "
                "would count its micro-batches from 0 again. Put it back, or start a new checkpoint"
            )

    def _spark_id(self) -> str:
        """The query's id in Spark's own checkpoint; empty before the first start."""
        try:
            return self._checkpoint.query()
        except SourceError as error:
            ours = self._known_id()
            if ours is None:
                remedy = f"nothing is read yet, so delete {self._checkpoint}"
            else:
                metadata = msgspec.json.encode({"id": ours}).decode()
                remedy = (
                    f"put it back, or write {metadata} into it and delete .metadata.crc beside it"
                )
            raise SourceError(f"{error}: {remedy}, and start again") from None

    def _known_id(self) -> str | None:
        """The id of the query that wrote the spool; None before the first micro-batch."""
        written = self._fed_by()
        if written is not None:
            return written
        return next((marker.query for marker in self._markers.values()), None)

    def _fed_by(self) -> str | None:
        """The content of the file `query`; None where it does not exist yet."""
        try:
            return self._store.read(_QUERY).decode()
        except FileNotFoundError:
            return None


def _marker_name(batch: int) -> str:
    return f"{_BATCHES}/{batch:012d}.json"


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:600] or type(error).__name__
