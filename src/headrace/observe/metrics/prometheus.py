"""Prometheus metrics of a run: a listener, whose figures are collected when they are asked for.

    metrics = PrometheusListener()
    metrics.serve(9095)
    pipeline.run(checkpoint=..., listeners=[metrics])

It costs a few microseconds per epoch: an epoch only replaces the last figures. Counters are those
of this run, and begin at zero with each start, as Prometheus expects.

Needs `pip install 'headrace[metrics]'`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.model.values.time import BEGINNING, LATEST
from headrace.plan.listener import Listener
from headrace.plan.progress import EpochProgress, Notice, RunSummary, Status

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from headrace.observe.metrics.server import MetricsServer

BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
PIPELINE = ("pipeline",)
COMPUTATION = ("pipeline", "computation")


class PrometheusListener(Listener):
    """Keeps the figures of a run, and shows them to Prometheus."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, pipeline: str = "") -> None:
        client = _client()
        self._core, self._clock = client.core, clock
        self.registry = client.CollectorRegistry()
        self._epoch_s = client.Histogram(
            "headrace_epoch_seconds", "How long epochs took, from plan to delivery.", PIPELINE,
            buckets=BUCKETS, registry=self.registry,
        )  # fmt: skip
        self._phase_s = client.Histogram(
            "headrace_epoch_phase_seconds",
            "How long each act of an epoch took: plan, job, judge, commit, deliver.",
            ("pipeline", "phase"), buckets=BUCKETS, registry=self.registry,
        )  # fmt: skip
        self._rows = client.Counter(
            "headrace_produced_rows", "Rows that went to sinks.", PIPELINE, registry=self.registry
        )
        self._retries = client.Counter(
            "headrace_retries", "Attempts of jobs beyond the first.", PIPELINE,
            registry=self.registry,
        )  # fmt: skip
        self._notices = client.Counter(
            "headrace_notices", "Notices of the run, by kind.", ("pipeline", "kind"),
            registry=self.registry,
        )  # fmt: skip
        self._last: EpochProgress | None = None
        self._epochs = 0
        self._outages = 0
        self._outage_s = 0.0
        self._away_since: float | None = None
        self._over = ""
        """How the run is over: ended or failed."""
        self.pipeline = pipeline
        self.registry.register(_Collected(self._collect))

    def serve(self, port: int, health: Callable[[], Status] | None = None) -> MetricsServer:
        """Shows the figures at http://127.0.0.1:port/metrics; `/healthz` is beside them.

        `health` is a job's `status`; without it `/healthz` knows what listeners are told.
        """
        from headrace.observe.metrics.server import MetricsServer  # workers never serve

        return MetricsServer(port, self.text, health or self._status)

    def text(self) -> bytes:
        """The figures in Prometheus' text format."""
        made: bytes = _client().generate_latest(self.registry)
        return made

    # What happens ---------------------------------------------------------

    def on_epoch(self, progress: EpochProgress) -> None:
        """Takes the figures of an epoch."""
        self._last, name = progress, progress.pipeline
        self.pipeline, self._over = name, ""
        self._epochs += 1
        self._epoch_s.labels(name).observe(progress.seconds)
        for phase in progress.phases.__struct_fields__:
            self._phase_s.labels(name, phase).observe(getattr(progress.phases, phase))
        self._rows.labels(name).inc(progress.produced)
        self._retries.labels(name).inc(progress.attempts - 1)

    def on_notice(self, notice: Notice) -> None:
        """Counts a notice; an outage begins with "away" and ends with "back"."""
        self.pipeline = self.pipeline or notice.pipeline
        self._notices.labels(notice.pipeline, notice.kind).inc()
        if notice.kind == "away" and self._away_since is None:
            self._outages += 1
            self._away_since = self._clock()
        elif notice.kind == "back":
            self._waits_no_more()

    def on_end(self, summary: RunSummary) -> None:
        """The run has ended; its last figures stay."""
        self._over = "ended"
        self._waits_no_more()

    def on_failure(self, error: Exception) -> None:
        """The run has failed."""
        self._over = "failed"
        self._waits_no_more()

    def _waits_no_more(self) -> None:
        if self._away_since is not None:
            self._outage_s += self._clock() - self._away_since
            self._away_since = None

    def _status(self) -> Status:
        last = self._last
        phase = self._over or ("running" if last is not None else "starting")
        return Status(
            self.pipeline, phase, not self._over, last.epoch if last else 0, 0, 0,
            last.records_total if last else 0, 0, 0, 0,
        )  # fmt: skip

    # What is shown --------------------------------------------------------

    def _collect(self) -> Iterator[Metric]:
        counter, gauge = self._core.CounterMetricFamily, self._core.GaugeMetricFamily
        name, last = self.pipeline, self._last
        away_s = 0.0 if self._away_since is None else self._clock() - self._away_since
        yield _one(counter, "headrace_outages", "Outages that were announced.", name, self._outages)
        yield _one(
            counter, "headrace_outage_seconds", "How long the run has waited in outages.",
            name, self._outage_s + away_s,
        )  # fmt: skip
        yield _one(
            gauge, "headrace_in_outage", "1 while the run waits for the end of an outage.",
            name, int(self._away_since is not None),
        )  # fmt: skip
        if last is None:
            return
        for metric, kind, about, value in _of_pipeline(last, self._epochs):
            yield _one(counter if kind == "counter" else gauge, metric, about, name, value)
        yield from self._of_computations(last)
        yield from self._by_name(last)

    def _of_computations(self, last: EpochProgress) -> Iterator[Metric]:
        for metric, (kind, about, figure) in COMPUTATION_METRICS.items():
            family = getattr(self._core, f"{kind.capitalize()}MetricFamily")
            found = family(metric, about, labels=COMPUTATION)
            for name, each in last.computations.items():
                value = figure(each, last)
                if value is not None:
                    found.add_metric((last.pipeline, name), value)
            yield found

    def _by_name(self, last: EpochProgress) -> Iterator[Metric]:
        counter = self._core.CounterMetricFamily
        counts = counter(
            "headrace_user_count", "What computations count by ctx.count.",
            labels=("pipeline", "computation", "name"),
        )  # fmt: skip
        for full, value in last.counts.items():
            counts.add_metric((last.pipeline, *_counted_by(full, last.computations)), value)
        yield counts
        shed = counter(
            "headrace_shed_records", "Records that overloaded slots have dropped.",
            labels=("pipeline", "stream"),
        )  # fmt: skip
        for stream, value in last.shed.items():
            shed.add_metric((last.pipeline, stream), value)
        yield shed
        requests = counter(
            "headrace_store_requests", "Requests to stores, by purpose and kind.",
            labels=("pipeline", "purpose", "kind"),
        )  # fmt: skip
        carried = counter(
            "headrace_store_bytes", "Bytes to (out) and from (in) stores, by purpose.",
            labels=("pipeline", "purpose", "direction"),
        )  # fmt: skip
        for purpose, made in last.store.requests.items():
            for kind in ("puts", "gets", "lists", "deletes"):
                requests.add_metric((last.pipeline, purpose, kind), getattr(made, kind))
            carried.add_metric((last.pipeline, purpose, "out"), made.bytes_out)
            carried.add_metric((last.pipeline, purpose, "in"), made.bytes_in)
        yield requests
        yield carried


class _Collected:
    """What a registry asks for metrics."""

    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self.collect = collect


def _of_pipeline(last: EpochProgress, epochs: int) -> Iterator[tuple[str, str, str, float]]:
    yield "headrace_epochs", "counter", "Epochs that this run has committed.", epochs
    yield "headrace_epoch", "gauge", "The last committed epoch.", last.epoch
    yield "headrace_records", "counter", "Records read from sources.", last.records_total
    yield "headrace_late_records", "counter", "Late records.", last.late
    yield "headrace_dead_letters", "counter", "Dead letters.", last.dead
    yield "headrace_voided_plans", "counter", "Plans that were given up.", last.voids
    yield "headrace_state_bytes", "gauge", "Bytes of all state.", last.state_bytes
    about = "Records that overloaded slots carry over into the next epoch."
    yield "headrace_carried_records", "gauge", about, last.carried
    if last.backlog is not None:
        yield "headrace_backlog_records", "gauge", "Records that wait to be read.", last.backlog
    if _is_time(last.watermark):
        about = "The lowest input watermark, seconds since 1970."
        yield "headrace_watermark_seconds", "gauge", about, last.watermark / 1e6


Figure = Callable[[Any, EpochProgress], float | None]

COMPUTATION_METRICS: dict[str, tuple[str, str, Figure]] = {
    "headrace_computation_records": (
        "counter", "Records that reached a computation, or were read from a source.",
        lambda each, last: each.records,
    ),
    "headrace_computation_bytes": (
        "counter", "Bytes of records that reached a computation.", lambda each, last: each.bytes,
    ),
    "headrace_computation_busy_seconds": (
        "counter", "How long the slots of a computation were busy.",
        lambda each, last: each.busy_s,
    ),
    "headrace_computation_watermark_seconds": (
        "gauge", "The input watermark, seconds since 1970.",
        lambda each, last: each.watermark / 1e6 if _is_time(each.watermark) else None,
    ),
    "headrace_computation_watermark_lag_seconds": (
        "gauge", "How far the watermark is behind the newest record.",
        lambda each, last: _lag_s(each.watermark, last.newest),
    ),
    "headrace_computation_state_bytes": (
        "gauge", "Bytes of state.", lambda each, last: each.state_bytes,
    ),
    "headrace_computation_cache_hits": (
        "counter", "Keys whose objects were in memory.", lambda each, last: each.hits,
    ),
    "headrace_computation_cache_misses": (
        "counter", "Keys whose objects had to be read.", lambda each, last: each.misses,
    ),
    "headrace_computation_late_records": (
        "counter", "Late records of a computation.", lambda each, last: each.late,
    ),
    "headrace_computation_dead_letters": (
        "counter", "Dead letters of a computation or source.", lambda each, last: each.dead,
    ),
    "headrace_computation_slots": (
        "gauge", "Slots of a computation.", lambda each, last: each.slots,
    ),
}  # fmt: skip


def _one(family: Any, metric: str, about: str, pipeline: str, value: float) -> Metric:
    found = family(metric, about, labels=PIPELINE)
    found.add_metric((pipeline,), value)
    made: Metric = found
    return made


def _counted_by(full: str, computations: Iterable[str]) -> tuple[str, str]:
    """Who counts, and what: both names may have dots."""
    known = [name for name in computations if full.startswith(f"{name}.")]
    computation = max(known, key=len, default=full.rpartition(".")[0])
    return computation, full[len(computation) + 1 :]


def _is_time(micros: int) -> bool:
    return BEGINNING < micros < LATEST


def _lag_s(watermark: int, newest: int) -> float | None:
    if not _is_time(watermark) or newest <= BEGINNING:
        return None
    return max(newest - watermark, 0) / 1e6


def _client() -> Any:
    try:
        import prometheus_client
        import prometheus_client.core
    except ModuleNotFoundError as error:
        raise HeadraceError(
            "metrics need prometheus-client: pip install 'headrace[metrics]'"
        ) from error
    return prometheus_client
