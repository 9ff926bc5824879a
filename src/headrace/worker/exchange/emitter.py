"""What a unit of work makes, and where it goes.

Rows of every stream are collected; `finish` runs the keyless computations that
live here, routes to keyed consumers, stages for sinks, writes feedback to the
outbox, and closes with one control row to every slot that this host feeds.

Invariant (protocol B2): the digest covers everything that was made and nothing
that differs between two honest attempts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import numpy as np
import pyarrow as pa
import xxhash

from headrace.causal.calls import UnitCalls
from headrace.causal.lineage import identity_part, origin_part, production_identity, row_identity
from headrace.errors import HeadraceError, InvalidRecord, SinkError, UserCodeError
from headrace.failpoints import reach
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.model.values.arrow import ipc_bytes
from headrace.model.values.codec import NESTED_MAX, packed
from headrace.model.values.keys import decode_key
from headrace.model.values.rows import Rows
from headrace.model.values.schema import Schema
from headrace.model.values.shown import encodable, shown
from headrace.model.values.time import oldest_on_time
from headrace.pipeline.graph.graph import Node, NodeInput, To
from headrace.plan.epoch import (
    Counters,
    EndOfInput,
    OutboxFile,
    StagedFile,
    WorkOrder,
    pack_determinants,
)
from headrace.plan.parcel import Parcel
from headrace.plan.progress import counted
from headrace.plan.routing import keyed, route
from headrace.plan.watermarks import Histogram, Mark
from headrace.worker.exchange.envelope import BLOB, CONTROL, Header, partitions
from headrace.worker.runtime import Runtime
from headrace.worker.tables.combine import combined
from headrace.worker.watching.tracebacks import describe, shortened, trace_of


class Emitter:
    """Collects and sends what one label makes."""

    def __init__(self, runtime: Runtime, task: WorkOrder, host: str, label: str) -> None:
        self.runtime = runtime
        self.task = task
        self.host = host
        self.label = label
        self.counters = Counters()
        self.staged: list[StagedFile] = []
        self.outbox: list[OutboxFile] = []
        self._streams: dict[str, list[Rows]] = {}
        """Rows that have not left yet, by stream."""
        self._sunk: dict[str, list[Rows]] = {}
        """Rows that have left, for sinks."""
        self._blobs: list[tuple[Header, bytes]] = []
        self._made = xxhash.xxh3_128()
        self._histograms: dict[str, Histogram] = {}
        self.calls = UnitCalls(runtime.store, task, label)
        self.answers = b""
        """Answers from outside that are logged with the commit, packed, once all is made."""
        self.keyless_hooks: dict[str, int] = {}
        """Keyless computation -> how many hooks of it have run here: the ordinal of the next."""

    def emit(self, stream: str, rows: Rows) -> None:
        """Adds rows to a stream; they leave at `finish`."""
        if len(rows):
            schema = self.runtime.topology.graph.schemas.get(stream)
            if rows.schema is not schema:
                rows = in_schema(rows, schema, stream, self.host)
            self._streams.setdefault(stream, []).append(rows)

    def emitted(self, stream: str, *, as_they_are: bool = False) -> list[Rows]:
        """What has been emitted to a stream and has not left yet; perhaps in several pieces,
        where columns and packed values are to stay what they are."""
        parts = self._streams.get(stream)
        if parts is None:
            return []
        return Rows.joined(parts) if as_they_are else [Rows.concat(parts)]

    def count(self, metric: str, n: int = 1) -> None:
        """Adds to a metric."""
        metrics, metric = self.counters.metrics, encodable(metric)
        metrics[metric] = metrics.get(metric, 0) + n

    def made(self, what: str) -> None:
        """Adds something made outside this emitter (a segment) to the digest."""
        self._made.update(what.encode())

    def apart(self) -> Emitter:
        """An emitter that collects what one key makes, to be taken over later."""
        return Emitter(self.runtime, self.task, self.host, self.label)

    def take_over(self, other: Emitter) -> None:
        """Adds all that `other` collected apart: counts, letters, answers from outside."""
        self.counters.add(other.counters)
        for stream, parts in other._streams.items():
            self._streams.setdefault(stream, []).extend(parts)
        self.calls.determinants.update(other.calls.determinants)

    def origins(self, stream: str, rows: Rows) -> tuple[list[bytes] | None, list[bytes]]:
        """The origins of rows and, where they carry them, their identities."""
        if rows.origins is None:
            return None, []
        cells = rows.origins.to_pylist()
        if stream not in self.runtime.topology.needs_identity:
            return cells, []
        return [origin_part(cell) for cell in cells], [identity_part(cell) for cell in cells]

    def dead_letter(
        self,
        policy: To,
        letter: dict[str, object],
        timestamp: int,
        origin: bytes,
        identity: bytes = b"",
    ) -> None:
        """Sends something aside with its error; `identity` is that of what failed."""
        if policy.stream in self.runtime.topology.needs_identity:
            origin += production_identity("dead letter", b"", identity, 0)
        self.counters.dead += 1
        owner = str(letter.get("computation") or letter.get("stream"))
        dead_of = self.counters.dead_of
        dead_of[owner] = dead_of.get(owner, 0) + 1
        if policy.limit is not None and dead_of[owner] > policy.limit:
            raise UserCodeError(
                f"{owner!r} sent more than {counted(policy.limit, 'record')} to "
                f"{policy.stream!r} in one epoch; the last one: {letter.get('error')}. Nothing of "
                "this epoch has happened: mend the input, or raise limit="
            )
        rows = Rows.of([_postable(letter)], [timestamp])
        rows.origins = pa.array([origin], pa.binary())
        self.emit(policy.stream, rows)

    def finish(
        self, mark: Mark, run_keyless: Callable[[Emitter], None]
    ) -> tuple[str, list[tuple[Header, bytes]]]:
        """The digest of all that was made, and the rows to send."""
        self._send_streams(run_keyless)
        self.answers = pack_determinants(self.calls.determinants.values())
        self._made.update(self.answers)
        digest = self._made.hexdigest()
        return digest, [*self._blobs, *self._controls(digest, mark)]

    def _send_streams(self, run_keyless: Callable[[Emitter], None]) -> None:
        topology = self.runtime.topology
        run_keyless(self)
        while leaving := self._streams:
            self._streams = {}
            for stream, parts in leaving.items():
                rows = Rows.concat(parts)
                for node, index, given in topology.keyed_consumers(stream):
                    self._route(stream, rows, node, index, given)
                self._sunk.setdefault(stream, []).append(rows)
            # Letters about keys that cannot be taken are rows too: go round with them alone.
            if self._streams:
                run_keyless(self)
        for stream, parts in self._sunk.items():
            for outlet in topology.outlets(stream):
                self._stage(outlet.name, stream, Rows.concat(parts))

    def _route(self, stream: str, rows: Rows, node: Node, index: int, given: NodeInput) -> None:
        parcel, bad = keyed(rows, given.key)
        if bad:
            unkeyed_rows = rows.take(np.array([b.index for b in bad]))
            _, identities = self.origins(stream, unkeyed_rows)
            for i, (unkeyed, value) in enumerate(zip(bad, unkeyed_rows.values(), strict=True)):
                timestamp = int(rows.timestamps[unkeyed.index])
                identity = identities[i] if identities else b""
                self._reject(node, stream, value, timestamp, unkeyed.error, identity)
        if node.percentile is not None and len(parcel.rows):
            histogram = Histogram.of(parcel.rows.timestamps)
            self._histograms.setdefault(node.name, Histogram()).merge(histogram)
        if node.combines and len(parcel.rows):
            parcel = self._combined(node, stream, self._on_time(node, parcel))
        if stream in self.runtime.topology.graph.feedback:
            self._post(stream, node, index, parcel)
            return
        level = self.runtime.topology.level[node.name]
        for slot, part in route(parcel, self.task.plan.rings[node.name]):
            for blob in part.blobs():
                header = Header(level, slot, BLOB, self.label, node.name, index, len(self._blobs))
                self._made.update(msgspec.msgpack.encode(header))
                self._made.update(blob)
                self._blobs.append((header, blob))

    def _combined(self, node: Node, stream: str, parcel: Parcel) -> Parcel:
        """A row per key and window; records that cannot be part of one go by their policy."""

        def refuse(row: int, error: Exception) -> None:
            one = parcel.rows.take(np.array([row]))
            key, timestamp = decode_key(parcel.keys[parcel.codes[row]]), int(one.timestamps[0])
            (value,) = one.values()
            policy = node.errors
            if not isinstance(policy, To) or not isinstance(error, policy.only):
                what = f"record {shown(value, 200)} of {stream!r}"
                raise UserCodeError(describe(node, key, what, error)) from error
            _, identities = self.origins(stream, one)
            letter = self._letter(node, stream, key, value, timestamp, error)
            identity = identities[0] if identities else b""
            self.dead_letter(policy, letter, timestamp, self.label.encode(), identity)

        return combined(self.runtime.live(node), parcel, refuse)

    def _letter(
        self,
        node: Node,
        stream: str,
        key: object,
        value: object,
        timestamp: int,
        error: BaseException,
    ) -> dict[str, object]:
        return {
            "computation": node.name, "stream": stream, "key": key, "value": value,
            "timestamp": timestamp, "epoch": self.task.plan.epoch,
            "error": f"{type(error).__name__}: {error}",
            "traceback": trace_of(error),
        }  # fmt: skip

    def _on_time(self, node: Node, parcel: Parcel) -> Parcel:
        """Judges lateness before rows are combined; see `keep_on_time` for all others."""
        late = parcel.rows.timestamps < oldest_on_time(self.task.ins.get(node.name, 0))
        if node.template.counts_late:
            self.counters.late += int(late.sum())
        if node.late != "drop" or not late.any():
            return parcel
        kept = np.flatnonzero(~late)
        return Parcel(parcel.keys, parcel.codes[kept], parcel.rows.take(kept), parcel.key_column)

    def _reject(
        self,
        node: Node,
        stream: str,
        value: object,
        timestamp: int,
        error: BaseException,
        identity: bytes,
    ) -> None:
        where = (
            f"computation {node.name!r} cannot take a key ({_key_of(node, stream)}) "
            f"from a record of {stream!r}"
        )
        policy = node.errors
        if isinstance(policy, To) and isinstance(error, policy.only):
            letter = self._letter(node, stream, None, value, timestamp, error)
            self.dead_letter(policy, letter, timestamp, self.label.encode(), identity)
            return
        kind = InvalidRecord if isinstance(error, InvalidRecord) else UserCodeError
        trace = shortened(error) if kind is UserCodeError else ""
        what = "" if kind is InvalidRecord else f"{type(error).__name__}: "
        raise kind(
            f"{where}: {what}{error}. The record, of {self.label}: "
            f"{shown(value)}. {self._advice(node, stream)}, or send such records aside: "
            f'errors=to("dead")' + (f"\n{trace}" if trace else "")
        ) from error

    def _advice(self, node: Node, stream: str) -> str:
        """What to do about records that a key cannot be taken from."""
        graph = self.runtime.topology.graph
        makers = [n for n in graph.nodes.values() if stream in n.outputs.values()]
        if not makers:
            return (
                "Mend the input (a file that is half read then needs --accept-changed) or the key"
            )
        joined = " (a join: in its select=, also for rows without a partner)"
        return (
            f"{makers[0].name!r} makes these records: keep the key in them"
            f"{joined if hasattr(makers[0].template, 'pairing') else ''}, or key_by() something "
            f"else before {node.name!r}"
        )

    def _stage(self, sink: str, stream: str, rows: Rows) -> None:
        outlet = self.runtime.topology.graph.outlets[sink]
        # Sinks see columns and dicts, never a user's class.
        try:
            data = outlet.sink.encode(in_schema(rows, None, stream, self.host))
        except SinkError as error:
            raise SinkError(
                f"{self.host!r} makes rows of {stream!r} that its sink {outlet.sink.identity()} "
                f"does not take: {error}. Nothing of this epoch has happened: mend the rows, or "
                "give the stream or the sink a schema=, and start again"
            ) from error
        digest = digest_of(data)
        name = paths.content_name(self.task.plan.epoch, self.label, digest)
        reach("before-segment-write")
        self.runtime.store.write(f"{paths.staged_directory(sink)}/{name}", data)
        self._made.update(name.encode())
        weak = self.runtime.topology.is_weak(stream)
        self.staged.append(StagedFile(sink, self.label, name, digest, len(rows), weak))

    def _post(self, stream: str, node: Node, index: int, parcel: Parcel) -> None:
        """Feedback: waits in the outbox, under its consumer, for the next epoch."""
        if not len(parcel.rows):
            return
        batch = pa.RecordBatch.from_arrays([pa.array(list(parcel.blobs()), pa.binary())], ["blob"])
        data = ipc_bytes(batch)
        name = paths.content_name(
            self.task.plan.epoch, f"{self.label}>{node.name}>{index}", digest_of(data), ".arrow"
        )
        self.runtime.store.write(f"{paths.OUTBOX}/{name}", data)
        self._made.update(name.encode())
        oldest = int(parcel.rows.timestamps.min())
        self.outbox.append(
            OutboxFile(name, node.name, stream, self.label, oldest, len(parcel.rows))
        )

    def _controls(self, digest: str, mark: Mark) -> Iterator[tuple[Header, bytes]]:
        topology, plan = self.runtime.topology, self.task.plan
        sent: dict[tuple[int, int], int] = {}
        for header, _ in self._blobs:
            sent[header.level, header.slot] = sent.get((header.level, header.slot), 0) + 1
        for level in topology.fed_levels(self.host):
            for slot in range(partitions(topology, plan, level)):
                control = EndOfInput(
                    self.label,
                    self.host,
                    digest,
                    mark,
                    sent.get((level, slot), 0),
                    self._histograms,
                )
                header = Header(level, slot, CONTROL, self.label)
                yield header, msgspec.msgpack.encode(control)


def in_schema(rows: Rows, schema: Schema | None, stream: str, host: str) -> Rows:
    """Rows in the columns of their stream's schema; what does not fit stops the pipeline."""
    if schema is None:
        bare = rows.slice(0, len(rows))
        bare.schema = None
        return bare
    try:
        if rows.columns is not None:
            columns, reasons = schema.cast(rows.columns)
        else:
            columns, reasons = schema.batch(rows.values())
    except HeadraceError as error:
        raise UserCodeError(f"{host!r} produces to {stream!r}: {error}") from None
    if reasons:
        i, reason = next(iter(reasons.items()))
        raise UserCodeError(f"{host!r} produces to {stream!r}, row {i} of a table: {reason}")
    return Rows(
        rows.timestamps,
        columns=columns,
        origins=rows.origins,
        time_column=rows.time_column if rows.time_column in schema.names else None,
        schema=schema,
    )


def identify(emitter: Emitter, stream: str, rows: Rows) -> None:
    """Gives rows whose causes are unknown identities behind their origins."""
    nth: dict[tuple[int, bytes], int] = {}
    cells = []
    values = rows.as_packed().packed.to_pylist()  # type: ignore[union-attr]
    times, origins = rows.timestamps.tolist(), rows.origins.to_pylist()  # type: ignore[union-attr]
    for origin, time, value in zip(origins, times, values, strict=True):
        number = nth[time, value] = nth.get((time, value), 0) + 1
        epoch = emitter.task.plan.epoch
        cells.append(origin + row_identity(stream, emitter.label, epoch, time, value, number))
    rows.origins = pa.array(cells, pa.binary())


def _postable(letter: dict[str, object]) -> dict[str, object]:
    """A letter that can be sent, whatever failed: what cannot be encoded is told as text."""
    made: dict[str, object] = {}
    for name, given in letter.items():
        try:
            packed(given, depth=NESTED_MAX)
            made[name] = given
        except InvalidRecord:
            made[name] = encodable(given) if isinstance(given, str) else shown(given)
    return made


def _key_of(node: Node, stream: str) -> str:
    return next((i.key.describe() for i in node.inputs if i.stream == stream), "?")
