"""Decides the next step from the ledger, the offers of sources, and the time. Pure.

The driver gathers the facts (`Offer`s), asks `decide`, and carries out the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from typing import NamedTuple

import msgspec

from headrace.limits import LIMITS, Limits
from headrace.model.source import Range, Timing
from headrace.model.values.time import BEGINNING, END
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.stragglers import limits_of_plan
from headrace.plan.decisions.watermark_bounds import watermark_bounds
from headrace.plan.elastic.decision import BALANCER, SCALER
from headrace.plan.epoch import InjectorPlan, Plan, ReadTask, SplitState
from headrace.plan.ledger import Ledger
from headrace.plan.rings.announced import is_due
from headrace.plan.rings.refs import EVEN
from headrace.plan.rings.ring import Ring
from headrace.plan.rings.towards import Moves, moves_towards
from headrace.plan.rings.wanted import Wanted
from headrace.plan.watermarks import Mark, feedback_input, merge


class Offer(msgspec.Struct, frozen=True):
    """What one injector offers: its splits, and the next range of each split that has one."""

    splits: Mapping[str, int]
    """Every known split -> the source's own lower bound of its times, or BEGINNING."""
    ranges: Mapping[str, Sequence[Range]]
    """Split -> the parts of its next range."""
    ended: bool
    """Whether all splits are known, and all have been read to their end."""
    news: Mapping[str, int] = {}
    """Split -> wall time at which it last had new records, or at which it was discovered."""
    caught_up: bool = True
    """Whether a source without a range now has no input left, as far as it knows."""
    missing: Sequence[str] = ()
    """Expected splits that are not finished and cannot be found."""
    left: int | None = None
    """About how many records there are beyond these ranges; None if the source cannot say."""


class Run(msgspec.Struct, frozen=True):
    """Run this plan."""

    plan: Plan


class Wait(msgspec.Struct, frozen=True):
    """There is nothing to do now; decide again at `until` (wall time), or on new input."""

    until: int | None


class Finish(msgspec.Struct, frozen=True):
    """The run is over."""

    reason: str


COMPACT_EVERY_US = 1_000_000
"""How often an idle pipeline runs an epoch to adopt merges that a request has asked for."""


class Settings(msgspec.Struct, frozen=True):
    """What all plans of a run have in common: some of its options, the code."""

    until: str | None
    tasks: int
    """How many tasks a level has, and at most read, if the ledger does not say (J10)."""
    slots: dict[str, int]
    """Computation -> how many slots its first ring has."""
    fingerprint: str
    short_records_max: int
    report_every: int = 0
    """How many epochs one report of load covers; 0 for no reports."""
    configured: dict[str, int] = {}
    """Computation -> `slots=` of this start, where it is given."""
    services: bool = False
    """Whether any computation calls an external system."""
    limits: Limits = LIMITS
    limited: Mapping[str, int] = {}
    """Label of a slot -> a limit beside those of the ledger; the simulator sets them at random."""
    shed: tuple[str, ...] = ()
    """Computations whose overloaded slots drop records."""
    state: str = ""
    """The state store, as plans name it."""
    written: bool = False
    """Whether deltas are written without a sync, until the next checkpoint (M2)."""
    still: bool = False
    """Whether rings stay as they are: a checkpoint of the slots as they are is under way (M3)."""
    held: bool = False
    """Whether what is only written lies on executors' disks. Then it is durable at once from the
    plan on that finds a change of a ring wanted, until the ring has changed (M6)."""
    still_tasks: int = 0
    """The number of tasks that stays for now, if it is not 0: slots must not move (M6)."""


def decide(
    topology: Topology,
    ledger: Ledger,
    offers: Mapping[str, Offer],
    settings: Settings,
    *,
    ring_of: Callable[[str], Ring],
    wall: int,
    seed: int,
    final_rounds: int,
    ready: Mapping[str, Container[int]] | None = None,
) -> Run | Wait | Finish:
    """Decides the next step.

    - `ring_of` gives the ring that a computation has now.
    - `ready`: computation -> slots that have prefetched what an announced ring gives them (J7).
    """
    wall = max(wall, ledger.wall + 1)
    changes = _ring_changes(topology, ledger, settings, ring_of, ready or {})
    injectors = {
        name: _injector(topology, ledger, name, offer, wall) for name, offer in offers.items()
    }
    reading = any(ranges for offer in offers.values() for ranges in offer.ranges.values())
    due = ledger.next_wall_timer()
    reason = (
        reading
        or bool(ledger.outbox)
        or (due is not None and due <= wall)
        or _watermark_moves(topology, ledger, injectors)
        or changes.requested
        or (bool(ledger.control.compact) and wall - ledger.wall >= COMPACT_EVERY_US)
    )
    ended = all(offer.ended for offer in offers.values())
    if settings.until == "end" and ended and not reading:
        # The final watermark is sent in epochs of its own, once the outbox has drained (D10).
        if not ledger.outbox and _all_final(topology, ledger):
            return Finish("end")
        if not ledger.outbox or _is_final(ledger, topology):
            if final_rounds >= settings.limits.final_rounds_max:
                return Finish("end")
            final = {
                name: msgspec.structs.replace(injector, final=True)
                for name, injector in injectors.items()
            }
            plan = _plan(topology, ledger, settings, [], final, changes, wall, seed, final=True)
            return Run(plan)
    if reason:
        reads = _assign(injectors, offers, _tasks(ledger, settings))
        plan = _plan(topology, ledger, settings, reads, injectors, changes, wall, seed, final=False)
        return Run(plan)
    if settings.until == "caught_up" and all(offer.caught_up for offer in offers.values()):
        return Finish("caught_up")
    return Wait(due)


def _plan(
    topology: Topology,
    ledger: Ledger,
    settings: Settings,
    reads: list[list[ReadTask]],
    injectors: dict[str, InjectorPlan],
    changes: _RingChanges,
    wall: int,
    seed: int,
    *,
    final: bool,
) -> Plan:
    moves = changes.now
    records = sum(read.range.records for task in reads for read in task)
    determinants = ledger.next_determinants(settings.limits) if settings.services else 0
    limited = bool(ledger.limits or settings.limited)
    slots = {
        name: {*ledger.slots.get(name, range(settings.slots[name]))}
        | {move.to for move in moves.get(name, ())}
        for name in topology.keyed
        if limited
    }
    return Plan(
        epoch=ledger.epoch + 1,
        wall=wall,
        seed=seed,
        fingerprint=settings.fingerprint,
        reads=reads,
        injectors=injectors,
        rings={
            name: ledger.rings[name].version + (name in moves) if name in ledger.rings else 1
            for name in topology.keyed
        },
        moves=moves,
        announced=changes.later,
        ring_bases={
            name: f"{EVEN}{settings.slots[name]}"
            for name in topology.keyed
            if name not in ledger.rings
        },
        configured={
            name: number
            for name, number in settings.configured.items()
            if ledger.configured.get(name) != number and not settings.still
        },
        short=records <= settings.short_records_max,
        final=final,
        based_on=ledger.commit_position,
        determinants=determinants,
        bounds=watermark_bounds(topology, ledger, injectors, reads) if settings.services else {},
        given_up=ledger.given_up if determinants == ledger.determinants else {},
        tasks=_tasks(ledger, settings),
        sketch=_reports(ledger, settings.report_every),
        limits=limits_of_plan(ledger.limits, settings.limited, slots),
        shed=settings.shed,
        state=settings.state,
        written=settings.written and not (settings.held and (changes.now or changes.later)),
    )


def _tasks(ledger: Ledger, settings: Settings) -> int:
    return settings.still_tasks or ledger.tasks or settings.tasks


class _RingChanges(NamedTuple):
    """Moves by computation."""

    now: dict[str, Moves]
    """Of this plan."""
    later: dict[str, Moves]
    """Of a later one, announced by this plan (J7)."""
    requested: bool
    """Whether a start or a request asks for some of them. Other changes wait for an epoch that has
    another reason: an idle pipeline needs no balance."""


def _reports(ledger: Ledger, every: int) -> bool:
    """Whether the next epoch reports its load: each `every`-th does, or if the last one asks."""
    return bool(every) and (ledger.load.soon or (ledger.epoch + 1) % every == 0)


def _ring_changes(
    topology: Topology,
    ledger: Ledger,
    settings: Settings,
    ring_of: Callable[[str], Ring],
    ready: Mapping[str, Container[int]],
) -> _RingChanges:
    """The moves that bring wanted rings (J1), and those that are announced first (J7).

    `slots=` of a start counts where it is not that of the last start: otherwise a driver that
    takes over would take back what was rescaled since. Nothing is cached yet then, so such a ring
    changes at once.
    """
    wanted = {
        name: Wanted(slots=slots, by="start")
        for name, slots in settings.configured.items()
        if ledger.configured.get(name) != slots
    }
    now: dict[str, Moves] = {}
    later: dict[str, Moves] = {}
    requested = False
    for name, each in {**wanted, **ledger.wanted}.items():
        if name not in topology.keyed or name not in ledger.rings:
            continue
        if each.expects not in (0, ledger.rings[name].version):
            continue
        if not each.moves and each.slots == len(ledger.slots[name]):
            continue
        moves = moves_towards(ring_of(name), each)
        if not moves:
            continue
        is_now = not settings.still and (
            name in wanted
            or is_due(
                moves,
                ring_of(name),
                ledger.slots[name],
                ledger.announced.get(name),
                ready.get(name, ()),
                ledger.epoch + 1,
                settings.limits,
            )
        )
        (now if is_now else later)[name] = moves
        asked = each.by not in (BALANCER, SCALER) and not settings.still
        requested = requested or asked
    return _RingChanges(now, later, requested)


def _injector(
    topology: Topology, ledger: Ledger, name: str, offer: Offer, wall: int
) -> InjectorPlan:
    """Every split that is not finished, with its mark before the epoch (D4)."""
    timing = topology.graph.injectors[name].source.timing
    known = ledger.splits.get(name, {})
    marks: dict[str, Mark] = {}
    for split, bound in offer.splits.items():
        state = known.get(split)
        if state is not None and state.finished:
            continue
        mark = Mark(bound, BEGINNING) if state is None else state.mark
        news = offer.news.get(split, wall) if state is None else state.news
        quiet = timing.idle_us is not None and wall - news >= timing.idle_us
        idle = quiet and not offer.ranges.get(split)
        marks[split] = Mark(None, mark.newest) if idle else mark
    for split in offer.missing:
        marks[split] = known[split].mark if split in known else Mark(BEGINNING, BEGINNING)
    return InjectorPlan(marks, ledger.newest_of(name))


def missing(
    timing: Timing,
    splits: Mapping[str, int],
    known: Mapping[str, SplitState],
    read: Container[str] = (),
) -> list[str]:
    """Expected splits that are not finished and cannot be found; `read` have left the ledger."""
    return [
        s
        for s in timing.expected
        if s not in splits and s not in read and not (s in known and known[s].finished)
    ]


def _assign(
    injectors: Mapping[str, InjectorPlan],
    offers: Mapping[str, Offer],
    readers: int,
) -> list[list[ReadTask]]:
    """Assigns ranges to reader tasks: the largest first, each to the least loaded task."""
    found: list[ReadTask] = []
    for name, offer in offers.items():
        for split, ranges in offer.ranges.items():
            mark = injectors[name].marks.get(split, Mark(BEGINNING, BEGINNING))
            found += [ReadTask(name, split, part, r, mark) for part, r in enumerate(ranges)]
    tasks: list[list[ReadTask]] = [[] for _ in range(min(readers, len(found)))]
    loads = [0] * len(tasks)
    for read in sorted(found, key=lambda r: (-r.range.records, r.label)):
        least = loads.index(min(loads))
        tasks[least].append(read)
        loads[least] += read.range.records + 1
    return tasks


def _watermark_moves(
    topology: Topology, ledger: Ledger, injectors: Mapping[str, InjectorPlan]
) -> bool:
    """Whether some input watermark would rise without any input (D9)."""
    for name, injector in injectors.items():
        mark = merge([*injector.marks.values(), Mark(None, injector.newest)])
        if mark.value > ledger.outs.get(name, BEGINNING):
            return True
    for node in topology.keyed.values():
        if any(i.stream in topology.graph.feedback for i in node.inputs):
            hosts = topology.feeders(node) or topology.waits_only_for_cycle(node)
            before = ledger.ins.get(node.name, BEGINNING)
            rising = feedback_input(before, [ledger.outs.get(h, BEGINNING) for h in hosts], None)
            if before < rising < END:
                return True
    return False


def _is_final(ledger: Ledger, topology: Topology) -> bool:
    """Whether the final watermark has been sent already."""
    return any(ledger.outs.get(name) == END for name in topology.graph.injectors)


def _all_final(topology: Topology, ledger: Ledger) -> bool:
    names = [*topology.graph.injectors, *topology.keyed]
    return all(ledger.outs.get(name, BEGINNING) == END for name in names)
