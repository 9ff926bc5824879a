"""One task of a level: receive rows, check them, run the computations of its slots, send output.

A task runs the slots that are dealt to it one after another (J10). Each slot of each computation is
a unit of work of its own, with its own label, report and errors.

The Spark task around it (`engine/spark/tasks`) adds placement and replicas. The harness and the
simulator call `run_level` directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

from headrace.model.values.time import END
from headrace.pipeline.graph.graph import Node
from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import Report, SlotDelta, WorkOrder
from headrace.plan.units import runs, slot_label, slots_of_task
from headrace.plan.watermarks import FINAL, Mark
from headrace.state.backends.applied_view import AppliedView, Overtaken
from headrace.worker.delta import write_delta
from headrace.worker.exchange.controls import ControlRows
from headrace.worker.exchange.emitter import Emitter
from headrace.worker.exchange.envelope import Envelope, Header, address_rows
from headrace.worker.exchange.inputs import Received, Torn
from headrace.worker.garbage import seldom_collecting
from headrace.worker.lateness import keep_arrival_on_time
from headrace.worker.overload.carried import waiting_of
from headrace.worker.overload.limit import within_limit
from headrace.worker.prefetch import load_ahead, prefetch_pieces
from headrace.worker.records.slot import run_records
from headrace.worker.runtime import Runtime
from headrace.worker.slot_run import Arrival, SlotRun, open_slot_run
from headrace.worker.tables.slot import run_tables
from headrace.worker.unit import run_unit
from headrace.worker.watching.measuring import measuring, measuring_records
from headrace.worker.watching.slot_load import slot_load


def run_level(
    runtime: Runtime, order: WorkOrder, level: int, number: int, envelopes: Iterable[Envelope]
) -> Iterator[Envelope]:
    """Runs task `number` of a level: processes rows for its slots, passes on rows for later levels.

    The slots come one after another, each with all its computations, so that the rows of one slot
    can be freed before the next one begins.
    """
    topology, plan = runtime.topology, order.plan
    mine: list[Envelope] = []
    onward: list[tuple[Header, bytes]] = []
    for envelope in envelopes:
        if envelope.header.level == level:
            mine.append(envelope)
        else:
            onward.append((envelope.header, envelope.body))
    yield from address_rows(topology, plan, level, onward)
    received = Received(topology, order, mine)
    del mine
    controls = ControlRows(topology, plan)
    for slot, names in _work_of(topology, order, level, number):
        for name in names:
            node = topology.keyed[name]
            emitter = Emitter(runtime, order, name, slot_label(name, slot))
            work = partial(_run, emitter, node, slot, received)
            with measuring(runtime, plan.epoch, emitter.label, received.bytes_of(node, slot)):
                rows = run_unit(emitter, number, controls, work)
            yield from address_rows(topology, plan, level, rows)
        received.free(slot)
    yield from address_rows(topology, plan, level, controls.rows())
    if order.repairs is None:
        prefetch_pieces(runtime, order, level, number)


def _work_of(
    topology: Topology, order: WorkOrder, level: int, number: int
) -> Iterator[tuple[int, list[str]]]:
    """The slots of a task, in order, each with the computations that own it."""
    names: dict[int, list[str]] = {}
    for name in topology.levels[level]:
        for slot in slots_of_task(order, name, number):
            if runs(order, slot_label(name, slot)):
                names.setdefault(slot, []).append(name)
    yield from sorted(names.items())


def _run(emitter: Emitter, node: Node, slot: int, received: Received) -> Report:
    runtime, topology = emitter.runtime, emitter.runtime.topology
    saw = received.check(node, slot)
    arrivals = received.arrivals(runtime, node, slot)
    mark = received.input_mark(node)
    # Each call of a hook per record may create a reference cycle, and each may be large.
    with seldom_collecting() if _is_table(node) else nullcontext():
        run = open_slot_run(emitter, node, slot, now=mark.value)
        ahead = emitter.order.repairs is None and emitter.order.applied is None
        if run.slot.cold and emitter.order.eager and ahead:
            load_ahead(run)
        waiting = waiting_of(runtime, emitter.order, node, slot)
        delta, hold = _run_hooks(run, waiting, arrivals)
    in_cycle = node.name in topology.in_cycle
    load = None
    if emitter.order.plan.sketch:
        load = slot_load([*waiting, *arrivals], received.bytes_of(node, slot), delta)
    return Report(
        label=emitter.label,
        host=node.name,
        digest="",
        mark=_output_mark(in_cycle, mark.lagging(node.template.lag_us), hold, run.carried_hold),
        saw=saw,
        slot=slot,
        input_mark=mark.value,
        delta=delta,
        load=load,
    )


def _run_hooks(
    run: SlotRun, waiting: list[Arrival], arrivals: list[Arrival]
) -> tuple[SlotDelta, int | None]:
    """Runs all hooks; returns the delta and the earliest hold on the watermark."""
    arrivals = [keep_arrival_on_time(run, arrival) for arrival in arrivals]
    run.emitter.counters.records += sum(len(a.parcel.rows) for a in arrivals)
    arrivals = within_limit(run, waiting, arrivals)
    emitter, records = run.emitter, sum(len(a.parcel.rows) for a in arrivals)
    watched = emitter.runtime.watched(emitter.order, emitter.label, emitter.counters, records)
    with _reading_one_moment(run), watched, measuring_records(emitter.runtime):
        if run.live.shape.takes_table:
            run_tables(run, arrivals)
        else:
            run_records(run, arrivals)
    return write_delta(run)


@contextmanager
def _reading_one_moment(run: SlotRun) -> Iterator[None]:
    """While hooks run: raises Torn if the state store was not at the slot's epoch throughout (O5).

    An error of a hook may come from what it should not have seen, so the store is asked first. And
    a try that counts for nothing leaves no object in the cache, so it is asked before the delta.
    """
    try:
        yield
    except Exception:
        _check_moment(run)
        raise
    _check_moment(run)


def _check_moment(run: SlotRun) -> None:
    if isinstance(run.state, AppliedView):
        try:
            run.state.check()
        except Overtaken as error:
            raise Torn(str(error)) from None


def _is_table(node: Node) -> bool:
    return node.shape.takes_table or not node.template.calls_users


def _output_mark(in_cycle: bool, mark: Mark, hold: int | None, carried: int | None) -> Mark:
    """min(in(e), earliest hold). Without a hold, "no bound" stays "no bound" (D1, D4).

    Under the final watermark only records that are carried over hold it back (P3, D10).
    """
    if mark.value == END:
        return FINAL.held(carried)
    if in_cycle and mark.bound is None:
        mark = Mark(mark.newest, mark.newest)
    return mark.held(hold).held(carried)
