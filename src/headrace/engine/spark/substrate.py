"""The Spark substrate: one epoch is one Spark job, a chain of shuffles, one per level.

Only the DataFrame API is used. Our jobs run in a session of their own, so that the user's settings
stay unchanged. Adaptive execution is off in it, because it would merge partitions and so break
tasks. A level has the same number of tasks in every epoch, however many slots there are (J10), so
frames and anchors are built once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import xxhash
from msgspec.structs import replace
from py4j.protocol import Py4JNetworkError
from pyspark.sql.functions import col

from headrace.engine.driver.local import read_all, reports_in, run_epoch
from headrace.engine.jobs.failures import STOPPED, ended
from headrace.engine.jobs.order_parts import PartsWriter, SentOrder
from headrace.engine.spark.anchoring.anchors import Anchors
from headrace.engine.spark.deadline import Deadline, JobMonitor
from headrace.engine.spark.held.deltas import SparkHeldDeltas
from headrace.engine.spark.jvm_noise import NoFarewell, status_of
from headrace.engine.spark.probe import look_at_workers
from headrace.engine.spark.session import (
    allocates,
    check_version,
    context_of,
    has_executors,
    parallelism_of,
)
from headrace.engine.spark.shipping.shipment import pickled
from headrace.engine.spark.tasks import (
    PLACE,
    ROW_SCHEMA,
    WORK_PROPERTY,
    FirstLevelFunction,
    LevelFunction,
    Place,
    ReadFunction,
    Shipment,
    SparkOrder,
    order_text,
)
from headrace.engine.spark.worker_use import WorkerUse
from headrace.engine.upkeep.held import HeldDeltas
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.pipeline.graph.topology import Topology
from headrace.plan.elastic.load import SlotNote
from headrace.plan.epoch import Plan, Report, WorkOrder, holds_deltas
from headrace.plan.options import LOCAL_CACHE_BYTES
from headrace.plan.progress import StoreUse
from headrace.plan.state.choice import IN_SEGMENTS, StateChoice
from headrace.state.cache import WorkerCache
from headrace.store.store import Store
from headrace.worker.exchange.envelope import Envelope, pack_header, tasks_at, unpack_header
from headrace.worker.runtime import Runtime

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    # Our own check of one output per producer replaces Spark's (protocol B4).
    "spark.sql.shuffle.orderIndependentChecksum.enabled": "false",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # An anchor has no rows, so Spark would broadcast it; then its partitions would have no effect.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
}
UNANCHORED_S = 60.0
"""How long Spark places tasks freely after an executor hung, unless executors change."""

_LAST_WORDS = "spark.sql.execution.pyspark.udf.faulthandler.enabled"


class Frames(NamedTuple):
    """What a chain of frames depends on: the way of its epochs, and how many tasks they have."""

    short: bool
    first: int
    """How many tasks the first stage has."""
    tasks: int
    """How many tasks each further stage has."""


def frames_of(plan: Plan) -> Frames:
    """The chain of frames that a plan needs. Rings and slots do not matter (J10)."""
    return Frames(plan.short, tasks_at(plan, 1 if plan.short else 0), plan.tasks)


class SparkSubstrate:
    """Runs epochs on a Spark session."""

    def __init__(
        self,
        spark: SparkSession,
        topology: Topology,
        store: Store,
        *,
        replicas: int = 0,
        epoch_timeout_s: float | None = None,
        local_cache_bytes: int = LOCAL_CACHE_BYTES,
        state: StateChoice = IN_SEGMENTS,
    ) -> None:
        check_version(spark.version)
        self.spark = spark
        self._context = context_of(spark)
        self._session = spark.newSession()
        try:
            for name, value in _SETTINGS.items():
                self._session.conf.set(name, value)
            if any(node.timeout_us for node in topology.graph.nodes.values()):
                # A worker that is ended by the watchdog then records the reason.
                self._session.conf.set(_LAST_WORDS, "true")
            self.parallelism = parallelism_of(spark)
            self.grows = has_executors(spark) and allocates(spark)
            look_at_workers(spark, self._session, self.parallelism, store)
            # Executors register while the session starts: by now there may be more of them.
            self.parallelism = max(self.parallelism, parallelism_of(spark))
        except BaseException:
            self._release()
            raise
        self._quiet = NoFarewell(self._context)
        # On the short way the driver reads with its own runtime.
        self._runtime = Runtime(topology, store, WorkerCache())
        self._store = store
        self._parts = PartsWriter(store)
        self._shipment: Shipment | None = None
        self._chains: dict[Frames, DataFrame] = {}
        self._anchors: Anchors | None = None
        self._deadline: Deadline | None = None
        self._monitor: JobMonitor | None = None
        self._unanchored: tuple[float, int] | None = None
        self._stays: Callable[[], bool] = lambda: False
        self._looked = 0
        self.places: dict[int, Place] = {}
        """Where the tasks of the last level ran."""
        self._use = WorkerUse()
        self._notes: list[SlotNote] = []
        self._replicas = replicas
        self._local_cache_bytes = local_cache_bytes
        self._state = state
        if self._context is not None and has_executors(spark):
            if topology.depth > 0:  # without keyed computations nothing is to be kept in place
                self._anchors = Anchors(self._session, self._context, replicas)
            self._deadline = Deadline(self._context, epoch_timeout_s)
        self.held: HeldDeltas | None = None
        if store.is_far and local_cache_bytes and self._context is not None:
            self.held = SparkHeldDeltas(
                self._context, self._numbers, store.location, local_cache_bytes, self._moves,
                lambda process, use: self._use.note(process, use), epoch_timeout_s,
            )  # fmt: skip

    def run(self, task: WorkOrder) -> Sequence[Report]:
        """Runs one epoch as one job."""
        topology, plan = self._runtime.topology, task.plan
        if topology.depth == 0 and plan.short:
            return run_epoch(self._runtime, task)
        here: list[Envelope] = []
        rows: list[tuple[int, bytes, bytes]] = []
        if plan.short:
            self._ship()  # before setup() runs here: clients that it opens cannot be pickled
            read = read_all(self._runtime, task)
            here = [row for row in read if row.header.level > topology.depth]
            rows = [
                (row.partition, pack_header(row.header), row.body)
                for row in read
                if row.header.level <= topology.depth
            ]
        if self.held is not None:
            self._stays = partial(holds_deltas, task)
        try:
            found = self._run(frames_of(plan), SparkOrder(self._parts.split(task), rows))
        except BaseException:
            self._parts.reset()  # perhaps tasks could not read them
            raise
        arrived = [Envelope(row[0], unpack_header(bytes(row[1])), bytes(row[2])) for row in found]
        self._note_places(plan.tasks, arrived)
        return reports_in([*here, *arrived])

    def _run(self, frames: Frames, order: SparkOrder) -> list[Any]:
        """The rows that a job returns."""
        with nullcontext() if self._monitor is None else self._monitor.over():
            if self._deadline is None:
                return self._collect(frames, order)
            return self._on_cluster(self._deadline, frames, order)

    def give_up_when(self, look: Callable[[], bool]) -> None:
        """Cancels a job when `look` says so; not through Spark Connect, where jobs have no tags."""
        if self._context is not None:
            self._monitor = JobMonitor(self._context, look)

    def rehearse(self, task: WorkOrder) -> None:
        """Sends an empty epoch through the workers; writes nothing."""
        plan, topology = task.plan, self._runtime.topology
        if topology.depth == 0 and plan.short:
            return
        # The sources are not prepared yet, so what is pickled now is not what will run.
        pipeline = pickled(topology)
        digest = xxhash.xxh3_128_hexdigest(pipeline)
        order = msgspec.msgpack.encode(SparkOrder(SentOrder(replace(task, step=None)), []))
        shipment = Shipment(pipeline, digest, self._store.location, order)
        self._chain(frames_of(plan), shipment).collect()

    def _on_cluster(self, deadline: Deadline, frames: Frames, order: SparkOrder) -> list[Any]:
        """Runs an epoch on executors that may die or hang: anchors its tasks, sets a deadline."""
        began = time.monotonic()
        with deadline.watch() as expiry:
            try:
                if self._holds():
                    order = self._anchored(order)
                found = self._collect(frames, order)
            except Exception:
                if expiry.happened and self._anchors is not None:
                    # What is cached on a hung executor cannot even be fetched from it.
                    self._chains.clear()
                    self._anchors.drop()
                    self._unanchored = (time.monotonic() + UNANCHORED_S, self._cores())
                raise
        deadline.took(time.monotonic() - began)
        return found

    def _holds(self) -> bool:
        """Whether tasks are anchored now."""
        if self._unanchored is not None:
            until, cores = self._unanchored
            if time.monotonic() < until and cores == self._cores():
                return False
            self._unanchored = None
            self._chains.clear()
        return self._anchors is not None

    def _cores(self) -> int:
        return int(self._context.defaultParallelism) if self._context is not None else 0

    def _anchored(self, order: SparkOrder) -> SparkOrder:
        anchors, plan = self._anchors, order.sent.order.plan
        if anchors is None:
            return order
        # Tasks stay between attempts: replicas hold the lost state now, no other executor is warm.
        changed = anchors.use(plan.tasks)
        if plan.epoch != self._looked:
            changed = anchors.refresh(self._stays) or changed
        if changed:
            self._chains.clear()
        self._looked = plan.epoch
        return SparkOrder(order.sent, order.rows, anchors.current.guards)

    def _numbers(self) -> tuple[DataFrame, int]:
        """A frame with a partition per task, where its slots are; and how many there are."""
        anchor = self._anchors.known if self._anchors is not None else None
        if anchor is None or self._unanchored is not None:
            return self._session.range(0, self.parallelism, 1, self.parallelism), self.parallelism
        return anchor.hold(None), len(anchor.home)

    def _moves(self) -> bool:
        """Whether slots are about to go to other executors, or may run on any."""
        return self._unanchored is not None or (self._anchors is not None and self._anchors.waits)

    def _note_places(self, tasks: int, rows: Sequence[Envelope]) -> None:
        told = [row for row in rows if row.header.kind == PLACE]
        for row in told:
            place = self.places[row.header.slot] = msgspec.msgpack.decode(row.body, type=Place)
            self._use.note(place.process, place.use)
            self._notes += place.notes
        if self._anchors is not None and told:
            seen = {row.header.slot: self.places[row.header.slot].executor for row in told}
            self._anchors.ran(tasks, seen)

    def _collect(self, frames: Frames, order: SparkOrder) -> list[Any]:
        data = msgspec.msgpack.encode(order)
        context = self._context
        if context is None:  # Spark Connect: the order is sent with the functions
            return self._chain(frames, self._ship(data)).collect()
        chain = self._chains.get(frames)
        if chain is None:
            chain = self._chains[frames] = self._chain(frames, self._ship())
        epoch = order.sent.order.plan.epoch
        context.setLocalProperty(WORK_PROPERTY, order_text(data) or self._order_file(epoch, data))
        # A new frame over the same plan is executed again, including its shuffles, but neither
        # built nor analysed again. Collecting the old frame would skip stages that have run.
        return chain.select("*").collect()

    def _order_file(self, epoch: int, data: bytes) -> str:
        """Writes a large work order; returns its name. Collection deletes it, after the epoch."""
        name = f"{paths.WORK}/{paths.content_name(epoch, 'order', digest_of(data))}"
        self._store.write_volatile(name, data)
        return name

    def _chain(self, frames: Frames, shipment: Shipment) -> DataFrame:
        """The frames of an epoch: one level over numbers, each further level behind a shuffle."""
        anchor = None
        if self._anchors is not None and self._unanchored is None:
            self._anchors.use(frames.tasks)
            anchor = self._anchors.current
        if frames.short and anchor is not None:
            numbers = anchor.hold(None)
        else:
            numbers = self._session.range(0, frames.first, 1, frames.first)
        function = FirstLevelFunction(shipment) if frames.short else ReadFunction(shipment)
        frame = numbers.mapInArrow(function, ROW_SCHEMA)
        for level in range(2 if frames.short else 1, self._runtime.topology.depth + 1):
            frame = frame.repartitionById(frames.tasks, col("partition"))
            if anchor is not None:
                frame = anchor.hold(frame)
            frame = frame.mapInArrow(LevelFunction(shipment, level), ROW_SCHEMA)
        return frame

    def _ship(self, order: bytes | None = None) -> Shipment:
        """The pipeline, pickled once: at the first epoch, when sources are prepared."""
        if self._shipment is None:
            pipeline = pickled(self._runtime.topology)
            digest = xxhash.xxh3_128_hexdigest(pipeline)
            near = self._near_bytes()
            self._shipment = Shipment(
                pipeline, digest, self._store.location, near_bytes=near, state=self._state.given,
                holds=self.held is not None,
            )  # fmt: skip
        return self._shipment if order is None else self._shipment.with_order(order)

    def _near_bytes(self) -> int:
        """How much executors may copy: for replicas, and from stores that are not on a disk."""
        keeps_replicas = self._replicas > 0 and self._anchors is not None
        return self._local_cache_bytes if self._store.is_far or keeps_replicas else 0

    def notes(self) -> Sequence[SlotNote]:
        """What was measured in slots, as far as it has come since the last call (K2)."""
        notes, self._notes = self._notes, []
        return notes + self._runtime.take_notes()  # its own of the short way, too

    def used(self) -> StoreUse:
        """What workers have asked of the store so far."""
        return self._use.total

    def close(self) -> None:
        """Drops our anchors and our own session; the given session belongs to the user."""
        if self._monitor is not None:
            with suppress(Exception):  # a stopped session has no tags any more
                self._monitor.end()
        if self._anchors is not None:
            try:
                self._anchors.drop()
            except Exception:
                pass  # a stopped session has dropped them already
        self._release()
        self._quiet.end()

    def _release(self) -> None:
        """Ends our session of Spark Connect, but not its server, as `stop` would on this machine.

        If not ended here, the session closes its channel at interpreter exit, and waits for ever.
        """
        if self._context is not None:
            return
        client: Any = self._session.client
        try:
            client.release_session()
        except Exception:
            pass  # the server has ended, and our session with it
        client.close()

    def gone(self) -> str | None:
        """How Spark has ended, if it can run no more epochs; unknown with Spark Connect."""
        context: Any = self._context
        if context is None:
            return None
        try:
            context.defaultParallelism  # noqa: B018 - a question that only a live JVM answers
        except (OSError, Py4JNetworkError):
            return ended(status_of(getattr(context._gateway, "proc", None)))
        except AttributeError:  # the context no longer has a JVM
            return STOPPED
        except Exception as error:
            return STOPPED if "stopped" in str(error) else None
        return None


def runs_user_code_while_reading(topology: Topology) -> bool:
    """Whether reading runs computations: keyless ones run where their input is made."""
    return any(
        host in topology.graph.injectors
        for node in topology.fused
        for given in node.inputs
        for host in topology.hosts[given.stream]
    )
