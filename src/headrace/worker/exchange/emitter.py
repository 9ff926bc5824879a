"""The output of a unit of work: rows of streams, blobs, staged files, and the digest of all.

The emitter collects and writes output; `unit` decides the order of the steps. Emitted rows are
taken (`take_rows`), routed by `routes`, and sent from here as blobs. Rows for sinks are staged.
Feedback goes to the outbox. `close` says what the unit has made, for the task's control rows.
What is small rides in the report instead of being written (`keep`).

Invariant (protocol B2): the digest covers all output, and nothing that may differ between two
correct attempts.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import msgspec
import pyarrow as pa
import xxhash

from headrace.causal.calls import UnitCalls
from headrace.causal.lineage import identity_part, origin_part, row_identity
from headrace.causal.packing import pack_determinants
from headrace.errors import (
    HeadraceError,
    SinkError,
    SinkUnavailable,
    StoreError,
    UserCodeError,
)
from headrace.failpoints import reach
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.log.rings import ring_of
from headrace.model.sink import EncodedFile
from headrace.model.values.rows import Rows, Timestamps
from headrace.model.values.schema import Schema
from headrace.model.values.shown import encodable, shown
from headrace.pipeline.graph.graph import Node
from headrace.plan.counters import Counters
from headrace.plan.epoch import (
    OutboxFile,
    StagedFile,
    WorkOrder,
)
from headrace.plan.parcel import Parcel
from headrace.plan.rings.ring import Ring
from headrace.plan.units import ride_bytes
from headrace.plan.watermarks import Histogram, Mark
from headrace.store.store import Store
from headrace.worker.exchange.controls import EndOfUnit
from headrace.worker.exchange.envelope import BLOB, Header
from headrace.worker.exchange.outbox import encode_outbox
from headrace.worker.runtime import Runtime

COUNT_MAX = 2**63 - 1


class Emitter:
    """Collects and sends the output of one unit of work (one label)."""

    def __init__(self, runtime: Runtime, order: WorkOrder, host: str, label: str) -> None:
        self.runtime = runtime
        self.order = order
        self.host = host
        self.label = label
        self.counters = Counters()
        self.staged: list[StagedFile] = []
        self.outbox: list[OutboxFile] = []
        self.riders: dict[str, bytes] = {}
        """Output that is not written, because the commit will carry it: name -> bytes."""
        self.written = False
        """Whether the delta is only written, and may be lost until the next checkpoint (M2)."""
        self._ride_bytes: int | None = None
        """How many more bytes may ride; None if nothing was kept yet."""
        self._streams: dict[str, list[Rows]] = {}
        """Rows that were not taken yet, by stream."""
        self._sunk: dict[str, list[Rows]] = {}
        """Rows that were taken, for sinks."""
        self._blobs: list[tuple[Header, bytes]] = []
        self._made = xxhash.xxh3_128()
        self._histograms: dict[str, Histogram] = {}
        self.calls = UnitCalls(runtime.store, order, label)
        self.answers = b""
        """Packed answers of outside services that are logged with the commit; set at the end."""
        self.asks = False
        """Whether a hook asked for a checkpoint."""
        self.numbered: dict[str, dict[tuple[int, bytes], int]] = {}
        """Stream -> time and value -> how many such rows without a known cause it was given."""
        self.keyless_hooks: dict[str, int] = {}
        """Keyless computation -> number of its hooks that have run here: the next ordinal."""

    def emit(self, stream: str, rows: Rows) -> None:
        """Adds rows to a stream. They stay here until `take_rows`."""
        if len(rows):
            schema = self.runtime.topology.graph.schemas.get(stream)
            if rows.schema is not schema:
                rows = in_schema(rows, schema, stream, self.host)
            self._streams.setdefault(stream, []).append(rows)

    def emitted(self, stream: str, *, as_they_are: bool = False) -> list[Rows]:
        """The rows of a stream that were emitted and not yet taken.

        There may be several pieces, because columnar and packed rows are not mixed.
        """
        parts = self._streams.get(stream)
        if parts is None:
            return []
        return Rows.joined(parts) if as_they_are else [Rows.concat(parts)]

    def count(self, metric: str, n: int = 1) -> None:
        """Adds to a metric."""
        if type(n) is not int or not -COUNT_MAX <= n <= COUNT_MAX:
            n = _whole(metric, n)
        metrics, metric = self.counters.metrics, encodable(metric)
        metrics[metric] = metrics.get(metric, 0) + n

    def made(self, what: str) -> None:
        """Adds output that was made outside this emitter (a segment) to the digest."""
        self._made.update(what.encode())

    def keep(self, name: str, data: bytes, *, delta: bool = False) -> bool:
        """Keeps a file of this output; returns whether it rides in the report, not written.

        With a checkpoint interval a delta is written without a sync (M2), and `written` says
        whether it may be lost. A repair writes deltas, durably, and nothing else (M5).
        """
        reach("before-segment-write")
        rides = self.ride(name, data)
        if not rides:
            store, repairs = self.runtime.store, self.order.repairs is not None
            if delta and self.order.plan.written and not repairs:
                self.written = store.write_for_now(name, data)
            elif delta or not repairs:
                store.write(name, data)
        reach("after-segment-write")
        return rides

    def ride(self, name: str, data: bytes) -> bool:
        """Takes a file into the report, from where it gets into the commit, if it is small (M1).

        All files of a unit share one allowance. What rides depends on the plan and on the output
        alone, so that every attempt decides alike.
        """
        if self._ride_bytes is None:
            self._ride_bytes = ride_bytes(self.order, self.runtime.store.system.limits)
        if len(data) > self._ride_bytes:
            return False
        self.riders[name] = data
        self._ride_bytes -= len(data)
        return True

    def apart(self) -> Emitter:
        """A separate emitter for the output of one key, merged later by `take_over`."""
        return Emitter(self.runtime, self.order, self.host, self.label)

    def take_over(self, other: Emitter) -> None:
        """Adds all that `other` collected: counts, rows, dead letters, answers of services."""
        self.counters.add(other.counters)
        self.asks |= other.asks
        for stream, parts in other._streams.items():
            self._streams.setdefault(stream, []).extend(parts)
        self.calls.determinants.update(other.calls.determinants)

    def origins(self, stream: str, rows: Rows) -> tuple[list[bytes] | None, list[bytes]]:
        """The origins of rows and, if the stream carries them, their identities."""
        if rows.origins is None:
            return None, []
        cells = rows.origins.to_pylist()
        if stream not in self.runtime.topology.needs_identity:
            return cells, []
        return [origin_part(cell) for cell in cells], [identity_part(cell) for cell in cells]

    @property
    def has_rows(self) -> bool:
        """Whether there are rows that were not taken yet."""
        return bool(self._streams)

    def take_rows(self) -> list[tuple[str, Rows]]:
        """Removes and returns the rows of every stream that were not taken yet."""
        leaving, self._streams = self._streams, {}
        taken = [(stream, Rows.concat(parts)) for stream, parts in leaving.items()]
        for stream, rows in taken:
            self._sunk.setdefault(stream, []).append(rows)
        return taken

    def send(self, node: Node, index: int, slot: int, blob: bytes) -> None:
        """Sends a blob of records to a slot of a consumer."""
        level = self.runtime.topology.level[node.name]
        header = Header(level, slot, BLOB, self.label, node.name, index, len(self._blobs))
        self._made.update(msgspec.msgpack.encode(header))
        self._made.update(blob)
        self._blobs.append((header, blob))

    @property
    def bytes_out(self) -> int:
        """How many bytes of records were sent to other slots."""
        return sum(len(blob) for _, blob in self._blobs)

    def ring_of(self, node: Node) -> Ring:
        """The ring of a consumer."""
        return ring_of(self.runtime.store, self.order, node.name)

    def add_times(self, node: Node, timestamps: Timestamps) -> None:
        """Adds to the histogram of a consumer with a percentile watermark."""
        histogram = Histogram.of(timestamps)
        self._histograms.setdefault(node.name, Histogram()).merge(histogram)

    def stage(self) -> None:
        """Writes the staged files of sinks, for all rows that were taken."""
        for stream, parts in self._sunk.items():
            for outlet in self.runtime.topology.outlets(stream):
                self._stage(outlet.name, stream, Rows.concat(parts))

    def close(self, mark: Mark) -> tuple[EndOfUnit, list[tuple[Header, bytes]]]:
        """Returns what this unit made, with the digest of all output, and the blobs to send."""
        self.answers = pack_determinants(self.calls.determinants.values())
        self._made.update(self.answers)
        digest = self._made.hexdigest()
        return EndOfUnit(self.label, self.host, digest, mark, self._histograms), self._blobs

    def _stage(self, sink: str, stream: str, rows: Rows) -> None:
        outlet = self.runtime.topology.graph.outlets[sink]
        own = outlet.sink.own_store()
        # Sinks see columns and dicts, never a user's class.
        bare = in_schema(rows, None, stream, self.host)
        try:
            if own is None:
                files: Sequence[EncodedFile] = [
                    EncodedFile("", "", outlet.sink.encode(bare), len(rows))
                ]
            else:
                files = outlet.sink.encode_files(bare)
        except SinkError as error:
            raise SinkError(
                f"{self.host!r} makes rows of {stream!r} that its sink {outlet.sink.identity()} "
                f"does not take: {error}. This epoch had no effect: fix the rows, or "
                "give the stream or the sink a schema=, and start again"
            ) from error
        weak = self.runtime.topology.is_weak(stream)
        for file in files:
            self._stage_file(sink, file, own, weak=weak)

    def _stage_file(self, sink: str, file: EncodedFile, own: Store | None, *, weak: bool) -> None:
        """Keeps a file for a sink: in the report, in the sink's own store, or in the checkpoint."""
        digest = digest_of(file.data)
        name = paths.content_name(self.order.plan.epoch, self.label, digest, file.suffix)
        if file.directory:
            name = f"{file.directory}/{name}"
        staged = f"{paths.staged_directory(sink)}/{name}"
        # A replay has no effects: what it makes stays in its overlay of the checkpoint.
        if own is None or self.order.answers is not None:
            rides = self.keep(staged, file.data)
        else:
            reach("before-segment-write")
            rides = self.ride(staged, file.data)
            if not rides:
                _write_own(sink, own, file, name)
        self._made.update(name.encode())
        is_own = own is not None and not rides
        size = len(file.data) if is_own else 0
        self.staged.append(
            StagedFile(sink, self.label, name, digest, file.rows, weak, is_own, size, rides)
        )

    def post(self, stream: str, node: Node, index: int, parcel: Parcel) -> None:
        """Puts feedback into the outbox, under its consumer, for the next epoch."""
        if not len(parcel.rows):
            return
        data, slots = encode_outbox(parcel, self.ring_of(node))
        name = paths.content_name(
            self.order.plan.epoch, f"{self.label}>{node.name}>{index}", digest_of(data), ".arrow"
        )
        rides = self.keep(f"{paths.OUTBOX}/{name}", data)
        self._made.update(name.encode())
        oldest = int(parcel.rows.timestamps.min())
        self.outbox.append(
            OutboxFile(
                name, node.name, stream, self.label, oldest, len(parcel.rows), rides, slots=slots
            )
        )


def _write_own(sink: str, own: Store, file: EncodedFile, name: str) -> None:
    """Writes a file into a sink's own store; SinkUnavailable where that store refuses it."""
    try:
        if file.directory:
            own.make_directory(file.directory)
        own.write(name, file.data)
    except StoreError as error:
        raise SinkUnavailable(f"sink {sink!r}: {error}") from error


def in_schema(rows: Rows, schema: Schema | None, stream: str, host: str) -> Rows:
    """Rows in the columns of their stream's schema. A row that does not fit is an error."""
    if schema is None:
        bare = rows.slice(0, len(rows))
        bare.schema = None
        return bare
    try:
        fitted, reasons = fit(rows, schema)
    except HeadraceError as error:
        raise UserCodeError(f"{host!r} produces to {stream!r}: {error}") from None
    if reasons:
        i, reason = next(iter(reasons.items()))
        raise UserCodeError(f"{host!r} produces to {stream!r}, row {i} of a table: {reason}")
    return fitted


def fit(rows: Rows, schema: Schema) -> tuple[Rows, dict[int, str]]:
    """Rows in the columns of a schema, and for each row that does not fit, the reason.

    The values of rows that do not fit are undefined. Rows that were fitted here are not cast again
    when they are emitted.
    """
    if rows.columns is not None:
        columns, reasons = schema.cast(rows.columns)
    else:
        columns, reasons = schema.batch(rows.values())
    fitted = Rows(
        rows.timestamps,
        columns=columns,
        origins=rows.origins,
        time_column=rows.time_column if rows.time_column in schema.names else None,
        schema=schema,
    )
    return fitted, reasons


def _whole(metric: str, n: Any) -> int:
    """A number that can be counted; a TypeError or ValueError belongs to the hook that counts."""
    try:
        whole = int(index(n))
    except TypeError:
        raise TypeError(f"ctx.count: {metric} counts whole numbers, not {shown(n)}") from None
    if not -COUNT_MAX <= whole <= COUNT_MAX:
        raise ValueError(f"ctx.count: {metric} counts numbers of 64 bits, not {shown(n)}")
    return whole


def identify(emitter: Emitter, stream: str, rows: Rows) -> None:
    """Appends identities to the origins of rows whose causes are unknown."""
    nth = emitter.numbered.setdefault(stream, {})
    cells = []
    values = rows.as_packed().packed.to_pylist()  # type: ignore[union-attr]
    times, origins = rows.timestamps.tolist(), rows.origins.to_pylist()  # type: ignore[union-attr]
    for origin, time, value in zip(origins, times, values, strict=True):
        number = nth[time, value] = nth.get((time, value), 0) + 1
        epoch = emitter.order.plan.epoch
        cells.append(origin + row_identity(stream, emitter.label, epoch, time, value, number))
    rows.origins = pa.array(cells, pa.binary())
