"""Judges the reports of an epoch: a commit, a reason to run it again, or an error. Pure.

Protocol B3: the epoch is dropped if a label is missing, if it is reported twice with different
digests, or if a consumer saw another digest than the producer reported. Consumers say what they saw
as one digest over all their input; the driver computes the same from the producers' reports (J11).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from headrace.errors import HeadraceError, UserCodeError, by_name
from headrace.model.values.time import BEGINNING
from headrace.pipeline.graph.graph import To
from headrace.pipeline.graph.topology import Topology
from headrace.plan.counters import Counters, summed
from headrace.plan.epoch import Commit, Report, SlotDelta, SplitState, WorkOrder
from headrace.plan.interval.state import CommitInterval
from headrace.plan.units import TORN, host_mark, labels_of, saw_digest
from headrace.plan.watermarks import Mark, merge


class RunAgain(msgspec.Struct, frozen=True):
    """The reports of the epoch are not consistent; its plan must run again."""

    reason: str


class DeltasLost(msgspec.Struct, frozen=True):
    """Tasks could not reach deltas of their base; the plan runs again when they are repaired."""

    segments: tuple[str, ...]


def judge(
    topology: Topology, order: WorkOrder, reports: Sequence[Report]
) -> Commit | RunAgain | DeltasLost | HeadraceError:
    """The verdict on an epoch from all its reports."""
    if lost := {segment for report in reports for segment in report.missing}:
        return DeltasLost(tuple(sorted(lost)))
    failure = _failure(reports)
    if failure is not None:
        return failure
    found = _by_host(topology, order, reports)
    if isinstance(found, RunAgain):
        return found
    commit = _commit(topology, order, found)
    return _over_limit(topology, commit.counters.dead_of) or commit


def _failure(reports: Sequence[Report]) -> HeadraceError | None:
    errors = [r for r in reports if r.error is not None and r.error != TORN]
    if not errors:
        return None
    first = min(errors, key=lambda r: r.label)
    return by_name(first.error or "")(first.message)


def _by_host(
    topology: Topology, order: WorkOrder, reports: Sequence[Report]
) -> dict[str, list[Report]] | RunAgain:
    """Host -> one report of each of its units, in their order; or why the plan must run again.

    There is one report per slot, and there may be many slots: each pass over them is short.
    """
    torn = [report.message for report in reports if report.error is not None]
    if torn:
        return RunAgain(torn[0])
    by_label = {report.label: report for report in reports}
    if len(by_label) < len(reports) and (differ := _two_outputs(reports)) is not None:
        return differ
    found: dict[str, list[Report]] = {}
    for host in [*topology.graph.injectors, *topology.keyed]:
        labels = labels_of(topology, order, host)
        missing = [label for label in labels if label not in by_label]
        if missing:
            return RunAgain(f"no report of {missing[0]}")
        found[host] = [by_label[label] for label in labels]
    for host, of_host in found.items():
        if len({report.input_mark for report in of_host}) > 1:
            return RunAgain(f"the slots of {host} saw different watermarks")
        made = _made_for(topology, host, found) if host in topology.keyed else ""
        if {report.saw for report in of_host} - {made}:
            label = next(report.label for report in of_host if report.saw != made)
            return RunAgain(f"{label} consumed an output that is not the reported one")
    return found


def _two_outputs(reports: Sequence[Report]) -> RunAgain | None:
    """Whether two attempts of a unit have reported different things."""
    found: dict[str, Report] = {}
    for report in reports:
        first = found.setdefault(report.label, report)
        if first.digest != report.digest:
            return RunAgain(f"{report.label} reported two different outputs")
        if first.input != report.input:
            return RunAgain(f"{report.label} read two different inputs")
    return None


def _made_for(topology: Topology, computation: str, reports: Mapping[str, list[Report]]) -> str:
    """The digest of all output that a computation consumes, as its producers report it."""
    hosts = topology.feeders(topology.keyed[computation])
    return saw_digest((each.label, each.digest) for host in hosts for each in reports[host])


def _commit(topology: Topology, order: WorkOrder, by_host: dict[str, list[Report]]) -> Commit:
    plan = order.plan
    outs: dict[str, Mark] = {}
    for host, of_host in by_host.items():
        outs[host] = host_mark(topology, order, host, {r.label: r.mark for r in of_host})
    # All units of a host have the same input mark.
    marks = {host: of_host[0].input_mark for host, of_host in by_host.items() if of_host}
    ins = {host: mark for host, mark in marks.items() if mark is not None}
    for node in topology.fused:
        hosts = {h for i in node.inputs for h in topology.hosts[i.stream]}
        before = order.ins.get(node.name, BEGINNING)
        ins[node.name] = max(before, merge(outs[h] for h in hosts).value)
    deltas: dict[str, dict[int, SlotDelta]] = {}
    for host, of_host in by_host.items():
        made = {r.slot: r.delta for r in of_host if r.slot is not None and r.delta is not None}
        if made:
            deltas[host] = made
    found = [report for of_host in by_host.values() for report in of_host]
    with_files = [report for report in found if report.outbox or report.staged]
    with_files.sort(key=lambda report: report.label)
    return Commit(
        epoch=plan.epoch,
        ins=ins,
        outs={host: mark.value for host, mark in outs.items()},
        splits=_splits(topology, order, by_host),
        rings=plan.rings,
        deltas=deltas,
        outbox=[file for r in with_files for file in r.outbox],
        staged=[file for r in with_files for file in r.staged],
        counters=_total(topology, found),
        newest=max([r.newest for r in found], default=BEGINNING),
        digests={r.label: r.digest for r in found},
        inputs={r.label: r.input for r in found if r.input},
        determinants={r.label: r.determinants for r in found if r.determinants},
        interval=_interval(order, found),
        by_wall=tuple(n for n, k in topology.keyed.items() if k.shape.options.clock == "wall"),
    )


def _interval(order: WorkOrder, reports: Sequence[Report]) -> CommitInterval | None:
    """What a commit says about the checkpoint interval, if there is one (M2)."""
    if not order.plan.written:
        return None
    written = any(report.delta is not None and report.delta.written for report in reports)
    return CommitInterval(written=written, asked=any(report.asks for report in reports))


def _splits(
    topology: Topology, order: WorkOrder, by_host: Mapping[str, list[Report]]
) -> dict[str, dict[str, SplitState]]:
    found: dict[str, dict[str, SplitState]] = {}
    reports = {each.label: each for name in topology.graph.injectors for each in by_host[name]}
    reads = [read for tasks in order.plan.reads for read in tasks]
    for read in sorted(reads, key=lambda read: read.range.start):
        splits = found.setdefault(read.stream, {})
        mark = reports[read.label].mark
        before = splits.get(read.split)
        position = max(read.range.end, before.position if before else read.range.end)
        newest = max(mark.newest, before.mark.newest if before else mark.newest)
        finished = read.range.last or (before is not None and before.finished)
        bounds = [mark.bound] if before is None else [mark.bound, before.mark.bound]
        bound = None if finished else max((b for b in bounds if b is not None), default=None)
        seen = dict(before.seen) if before else {}
        for name, more in reports[read.label].seen.items():
            seen[name] = seen[name].then(more) if name in seen else more
        splits[read.split] = SplitState(
            position, Mark(bound, newest), finished, order.plan.wall, seen
        )
    return found


def _total(topology: Topology, reports: Sequence[Report]) -> Counters:
    """The sum of all counters; `records` counts records from sources, not those between levels."""
    total = Counters()
    for report in reports:
        if records := report.counters.records:
            if report.host in topology.graph.injectors:
                total.records += records
            total.records_of[report.host] = total.records_of.get(report.host, 0) + records
    counted = [report.counters for report in reports]
    total.hooks = sum([each.hooks for each in counted])
    total.timers = sum([each.timers for each in counted])
    total.late = sum([each.late for each in counted])
    total.dead = sum([each.dead for each in counted])
    total.behind = sum([each.behind for each in counted])
    total.unfired = sum([each.unfired for each in counted])
    # Most slots of a large epoch have none of these.
    for each in counted:
        if each.metrics:
            total.metrics = summed(total.metrics, each.metrics)
        if each.dead_of:
            total.dead_of = summed(total.dead_of, each.dead_of)
        if each.late_of:
            total.late_of = summed(total.late_of, each.late_of)
        if each.shed_of:
            total.shed_of = summed(total.shed_of, each.shed_of)
    return total


def _over_limit(topology: Topology, dead_of: dict[str, int]) -> UserCodeError | None:
    """An error if a computation or stream has more dead letters, over all tasks, than its limit."""
    graph = topology.graph
    policies = {
        **{name: injector.errors for name, injector in graph.injectors.items()},
        **{name: node.errors for name, node in graph.nodes.items()},
    }
    for name, count in dead_of.items():
        policy = policies.get(name)
        if isinstance(policy, To) and policy.limit is not None and count > policy.limit:
            return UserCodeError(
                f"{name!r} sent {count} records to {policy.stream!r} in one epoch; its limit is "
                f"{policy.limit}. Nothing of this epoch has happened: fix the input or the limit"
            )
    return None
