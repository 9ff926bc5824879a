"""Runs keyless computations in the task that produces their input. They keep no state."""

from __future__ import annotations

from typing import Any

from headrace.causal.calls import BROKEN
from headrace.errors import UserCodeError
from headrace.model.record import Record
from headrace.model.values.rows import Rows
from headrace.model.values.shown import shown
from headrace.model.values.time import END
from headrace.pipeline.graph.graph import Node, To
from headrace.worker.dead_letters import letter_of, send, takes_letter
from headrace.worker.exchange.emitter import Emitter
from headrace.worker.lateness import keep_on_time
from headrace.worker.records.context import HookContext
from headrace.worker.records.outputs import Outputs, names_outputs
from headrace.worker.records.traced_context import TracedContext, is_traced
from headrace.worker.runtime import Live
from headrace.worker.tables.slot import run_keyless_table
from headrace.worker.watching.tracebacks import describe
from headrace.worker.watching.watchdog import HookWatch, Interrupt, error_of, watching


def run_fused(emitter: Emitter) -> None:
    """Runs the keyless computations whose input this unit of work produced."""
    for node in emitter.runtime.topology.fused:
        as_they_are = not node.template.reads_values
        inputs = [
            (index, given.stream, rows)
            for index, given in enumerate(node.inputs)
            for rows in emitter.emitted(given.stream, as_they_are=as_they_are)
        ]
        if not inputs:
            continue
        live = emitter.runtime.live(node)
        before = emitter.order.ins.get(node.name, 0)
        if live.shape.takes_table:
            run_keyless_table(emitter, live, inputs, before)
        else:
            with watching(HookWatch(node)) as watch:
                _run_records(emitter, live, inputs, before, watch)


def _run_records(
    emitter: Emitter,
    live: Live,
    inputs: list[tuple[int, str, Rows]],
    before: int,
    watch: HookWatch,
) -> None:
    node = live.node
    traced: TracedContext | None = None
    outputs = Outputs(node, 0, traced=names_outputs(emitter, node))
    if is_traced(emitter, node):
        context: HookContext = (traced := TracedContext(emitter, node, outputs, None, b""))
    else:
        context = HookContext(emitter, node, outputs, None, b"")
    context.watermark = before
    context.final = emitter.order.plan.final or before == END
    context.key_bytes = emitter.label.encode()
    obj = live.object_class.__new__(live.object_class)
    first = hook = emitter.keyless_hooks.get(node.name, 0)
    spared = isinstance(node.errors, To)
    watch.over(context)
    for index, stream, rows in inputs:
        rows = keep_on_time(emitter, node, rows, before)
        origins, identities = emitter.origins(stream, rows)
        times = rows.timestamps.tolist()
        values = rows.values()
        watch.begin()
        for i, value in enumerate(values):
            record: Record[Any] = Record(value, times[i], None, stream, times[i] < before)
            context.hook, context.time = hook, times[i]
            hook += 1
            if traced is not None:
                traced.caused_by(stream, identities[i])
            savepoint = outputs.savepoint()
            metrics = dict(emitter.counters.metrics) if spared else {}
            try:
                obj.process_record(record, context)
                live.check_nothing_kept(obj)
            except (Exception, Interrupt) as raised:
                error = error_of(raised, watch)
                outputs.rewind(savepoint)
                if spared:
                    emitter.counters.metrics = metrics
                record.value = rows.slice(i, 1).values()[0]  # the value before the hook changed it
                origin, identity = origins[i] if origins else b"", traced.cause if traced else b""
                _fail(emitter, node, record, origin, identity, error)
            if emitter.calls.broken is not None:
                raise emitter.calls.broken
            if origins is not None:
                outputs.number(savepoint, origins[i], index)
        watch.turn = None
    emitter.counters.hooks += hook - first
    emitter.keyless_hooks[node.name] = hook
    outputs.emit(emitter)


def _fail(
    emitter: Emitter,
    node: Node,
    record: Record[Any],
    origin: bytes,
    identity: bytes,
    error: Exception,
) -> None:
    if isinstance(error, BROKEN):
        raise error
    if takes_letter(node.errors, error):
        letter = letter_of(
            emitter, node, None, record.stream, record.value, record.timestamp, error
        )
        send(emitter, node.errors, letter, record.timestamp, origin, identity)
        return
    raise UserCodeError(describe(node, None, f"record {shown(record.value)}", error)) from error
