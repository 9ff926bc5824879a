"""Keyless computations: they run in the task that makes their input, and keep nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace.causal.calls import BROKEN
from headrace.errors import UserCodeError
from headrace.model.computation import Computation
from headrace.model.record import Record
from headrace.model.values.rows import Rows
from headrace.model.values.shown import shown
from headrace.model.values.time import END
from headrace.pipeline.graph.graph import Node, To
from headrace.worker.exchange.emitter import Emitter
from headrace.worker.records.context import HookContext, Outputs
from headrace.worker.records.traced_context import TracedContext, is_traced, names_outputs
from headrace.worker.runtime import Live
from headrace.worker.watching.tracebacks import describe, trace_of
from headrace.worker.watching.watchdog import HookTimeout, HookWatch, Interrupt, told, watching


def run_fused(emitter: Emitter) -> None:
    """Runs the keyless computations whose input this unit of work made."""
    from headrace.worker.tables.slot import run_keyless_table

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
        before = emitter.task.ins.get(node.name, 0)
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
    context.final = emitter.task.plan.final or before == END
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
            mark = outputs.mark()
            metrics = dict(emitter.counters.metrics) if spared else {}
            try:
                obj.process_record(record, context)
                check_parameters(live, obj)
            except (Exception, Interrupt) as raised:
                error = told(raised, watch)
                outputs.rewind(mark)
                if spared:
                    emitter.counters.metrics = metrics
                record.value = rows.slice(i, 1).values()[0]  # as it was before the hook had it
                origin, identity = origins[i] if origins else b"", traced.cause if traced else b""
                _fail(emitter, node, record, origin, identity, error)
            if emitter.calls.broken is not None:
                raise emitter.calls.broken
            if origins is not None:
                outputs.number(mark, origins[i], index)
        watch.turn = None
    emitter.counters.hooks += hook - first
    emitter.keyless_hooks[node.name] = hook
    outputs.emit(emitter)


def check_parameters(live: Live, obj: Computation) -> None:
    """Without a key there is no state: a hook that leaves something on its object is wrong."""
    if left := vars(obj):
        names = ", ".join(left)
        left.clear()
        raise AttributeError(
            f"{live.shape.cls.__qualname__} assigned {names} in a hook, but has no key and so "
            "keeps nothing: give it a key and declare a field, or set it in __init__ or setup()"
        )


def keep_on_time(emitter: Emitter, node: Node, rows: Rows, before: int) -> Rows:
    """Applies the late policy; gives the rows that are to be processed."""
    if before == END:
        return rows  # what a loop still makes after the end: nothing is late any more (D2)
    late = rows.timestamps < before
    count = int(late.sum())
    if not count:
        return rows
    if node.template.counts_late:
        emitter.counters.late += count
    if node.late == "process":
        return rows
    if isinstance(node.late, To):
        emitter.emit(node.late.stream, rows.take(np.flatnonzero(late)))
    return rows.take(np.flatnonzero(~late))


def _fail(
    emitter: Emitter,
    node: Node,
    record: Record[Any],
    origin: bytes,
    identity: bytes,
    error: Exception,
) -> None:
    policy = node.errors
    if isinstance(error, BROKEN):
        raise error
    if isinstance(policy, To) and isinstance(error, policy.only):
        what = letter(emitter, node, None, record, error)
        emitter.dead_letter(policy, what, record.timestamp, origin, identity)
        return
    raise UserCodeError(describe(node, None, f"record {shown(record.value)}", error)) from error


def letter(
    emitter: Emitter, node: Node, key: Any, record: Record[Any] | None, error: Exception
) -> dict[str, Any]:
    """A dead letter: what failed, where and how."""
    return {
        "computation": node.name,
        "stream": record.stream if record else None,
        "key": key,
        "value": record.value if record else None,
        "timestamp": record.timestamp if record else None,
        "epoch": emitter.task.plan.epoch,
        "error": f"{type(error).__name__}: {error}",
        "traceback": _trace(error),
    }


def _trace(error: Exception) -> str:
    if isinstance(error, HookTimeout):
        return ""  # Where a hook was when it was stopped would differ from try to try.
    return trace_of(error)
