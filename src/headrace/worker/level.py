"""A slot of a level: receive, check, run every computation that owns the slot, send on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext

from headrace.errors import HeadraceError
from headrace.model.values.time import END
from headrace.pipeline.graph.graph import Node
from headrace.plan.epoch import Report, WorkOrder
from headrace.plan.units import TORN, labels_of, slot_label
from headrace.plan.watermarks import FINAL, UNBOUNDED, Mark
from headrace.worker.exchange.emitter import Emitter
from headrace.worker.exchange.envelope import REPORT, Envelope, Header, addressed
from headrace.worker.exchange.inputs import Received, Torn
from headrace.worker.exchange.reports import encode_report, failed
from headrace.worker.garbage import seldom_collecting
from headrace.worker.keyless import run_fused
from headrace.worker.records.slot import KeyedRun
from headrace.worker.runtime import Runtime


def run_level(
    runtime: Runtime, task: WorkOrder, level: int, slot: int, envelopes: Iterable[Envelope]
) -> Iterator[Envelope]:
    """One task of a level: everything addressed to `slot`, and what is to be passed on."""
    topology, plan = runtime.topology, task.plan
    mine: list[Envelope] = []
    onward: list[tuple[Header, bytes]] = []
    for envelope in envelopes:
        if envelope.header.level == level:
            mine.append(envelope)
        else:
            onward.append((envelope.header, envelope.body))
    yield from addressed(topology, plan, level, onward)
    for name in topology.levels[level]:
        if slot not in plan.rings[name].slots:
            continue
        node = topology.keyed[name]
        rows, report = _run(runtime, task, node, slot, mine)
        header = Header(topology.depth + 1, slot, REPORT, report.label)
        yield from addressed(topology, plan, level, [*rows, (header, encode_report(report))])


def _is_table(node: Node) -> bool:
    return node.shape.takes_table or not node.template.calls_users


def _run(
    runtime: Runtime, task: WorkOrder, node: Node, slot: int, envelopes: list[Envelope]
) -> tuple[list[tuple[Header, bytes]], Report]:
    topology, plan = runtime.topology, task.plan
    label = slot_label(node.name, slot)
    try:
        received = Received(envelopes)
        expected = [
            found for host in topology.feeders(node) for found in labels_of(topology, plan, host)
        ]
        saw = received.check(expected)
        arrivals = received.arrivals(runtime, task, node, slot)
        mark = received.input_mark(topology, task, node)
        emitter = Emitter(runtime, task, node.name, label)
        # A hook per record may leave a cycle per record behind, and each may be large.
        with seldom_collecting() if _is_table(node) else nullcontext():
            run = KeyedRun(runtime, task, node, slot, emitter, now=mark.value)
            delta, hold = run.run(arrivals)
        lag = node.template.lag_us
        after = _output_mark(node.name in topology.in_cycle, mark.lagging(lag), hold)
        digest, rows = emitter.finish(after, run_fused)
    except Torn as torn:
        return [], Report(
            label=label,
            host=node.name,
            digest="",
            mark=UNBOUNDED,
            saw={},
            error=TORN,
            message=str(torn),
        )
    except HeadraceError as error:
        return [], failed(label, node.name, error)
    return rows, Report(
        label=label,
        host=node.name,
        digest=digest,
        mark=after,
        saw=saw,
        slot=slot,
        input_mark=mark.value,
        delta=delta,
        staged=emitter.staged,
        outbox=emitter.outbox,
        counters=emitter.counters,
        determinants=emitter.answers,
    )


def _output_mark(in_cycle: bool, mark: Mark, hold: int | None) -> Mark:
    """min(in(e), what is still held); "no bound" passes on where nothing holds it (D1, D4)."""
    if mark.value == END:
        return FINAL
    if in_cycle and mark.bound is None:
        mark = Mark(mark.reached, mark.reached)
    return mark.held(hold)
