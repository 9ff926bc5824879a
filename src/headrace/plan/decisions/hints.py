"""Hints about likely mistakes: a pipeline that works, but may not do what was meant.

Pure. Each hint is given once.
"""

from __future__ import annotations

from headrace.model.key_spec import KeySpec
from headrace.model.values.time import LATEST
from headrace.operators.windows.aggregation import WindowAggregate
from headrace.pipeline.graph.dedup import Dedup
from headrace.pipeline.graph.graph import Graph, Node, To
from headrace.pipeline.graph.topology import Topology
from headrace.plan.counters import Counters
from headrace.plan.ledger import Ledger
from headrace.plan.progress import counted

_THIS_CENTURY = {"s": (900_000_000, 4_200_000_000), "ms": (900_000_000_000, 4_200_000_000_000)}
"""Unit -> its numbers from about 1998 to 2103. Read as microseconds they are in early 1970."""


def before_running(topology: Topology, ledger: Ledger) -> list[str]:
    """Hints that follow from the checkpoint alone."""
    return state_left_behind(topology, ledger) + keys_in_doubt(topology, ledger)


def after_reading(topology: Topology, ledger: Ledger, counters: Counters) -> list[str]:
    """Hints that need the first records of a run; `counters` are those of the run."""
    graph = topology.graph
    doubts = none_taken(topology, counters)
    return doubts or units_in_doubt(graph, ledger) + times_in_doubt(graph, ledger)


def state_left_behind(topology: Topology, ledger: Ledger) -> list[str]:
    """State of computations that this pipeline does not have; they may have been renamed."""
    return [
        f"the checkpoint has state of {name!r}, which no computation of this pipeline takes: "
        f"aliases=({name!r},)?"
        for name, slots in sorted(ledger.slots.items())
        if name not in topology.keyed and any(slot.entries for slot in slots.values())
    ]


def keys_of(topology: Topology) -> dict[str, dict[str, str]]:
    """Computation -> stream -> what it is keyed by, as a checkpoint stores it."""
    return {
        name: {given.stream: _named(given.key) for given in node.inputs if not given.key.keyless}
        for name, node in topology.keyed.items()
    }


def _named(key: KeySpec) -> str:
    """The columns. All functions count as equal: their text changes more often than their keys."""
    return "a function" if key.function is not None else key.describe()


def keys_in_doubt(topology: Topology, ledger: Ledger) -> list[str]:
    """Computations with state that were keyed by another column when it was written."""
    told = []
    for name, now in keys_of(topology).items():
        before = ledger.keys.get(name, {})
        if not any(slot.entries for slot in ledger.slots.get(name, {}).values()):
            continue
        told += [
            f"computation {name!r} takes its key of {stream!r} from {key} now, and took it from "
            f"{before[stream]} when its state was written: the state of old keys stays, and "
            "records do not find it. Is that meant? (A computation with a new name has no state)"
            for stream, key in now.items()
            if before.get(stream, key) != key
        ]
    return told


def none_taken(topology: Topology, counters: Counters) -> list[str]:
    """Streams and computations whose records have all become dead letters so far."""
    told = []
    graph = topology.graph
    for stream, injector in graph.injectors.items():
        aside = counters.dead_of.get(stream, 0)
        if aside and not counters.records_of.get(stream) and isinstance(injector.errors, To):
            told.append(
                f"no record of {stream!r} could be read so far: {_all_of(aside)} to "
                f"{injector.errors.stream!r}, with the reason. Are its format, schema= and "
                "timestamp= right?"
            )
    for name, node in topology.keyed.items():
        aside = counters.dead_of.get(name, 0)
        # Dead letters of timers come without records.
        taken = counters.records_of.get(name) or counters.timers
        if aside and not taken and isinstance(node.errors, To):
            keys = ", ".join(given.key.describe() for given in node.inputs)
            told.append(
                f"no record has reached {name!r} so far: {_all_of(aside)} to "
                f"{node.errors.stream!r}, with the reason. Is its key right? ({keys})"
            )
    return told


def _all_of(aside: int) -> str:
    return "the only one was sent" if aside == 1 else f"all {counted(aside, 'record')} were sent"


def times_in_doubt(graph: Graph, ledger: Ledger) -> list[str]:
    """Windows by event time over records that carry the time at which they were read."""
    unstamped = {
        stream
        for stream, injector in graph.injectors.items()
        if injector.source.timing.timestamp is None
        and any(
            # A source may itself know times; ingestion times are the wall time of the plan.
            state.mark.newest + injector.source.timing.lateness_us == state.news
            for state in ledger.splits.get(stream, {}).values()
        )
    }
    told = []
    for node in graph.nodes.values():
        window = node.template
        if not isinstance(window, WindowAggregate) or not window.by_event:
            continue
        if window.window.endless or window.window.columns:
            continue
        told += [
            f"{node.name!r} cuts {stream!r} into windows by event time, but its source has no "
            "timestamp=, so that records count for the moment at which they are read. Is it "
            'forgotten? (If not, say by="ingestion" where the window is made)'
            for stream in sorted(_sources_of(graph, node) & unstamped)
        ]
    return told


def _sources_of(graph: Graph, node: Node) -> set[str]:
    """The sources whose records reach a step with their own times.

    That is so if only built-in steps which hold no record back lie between.
    """
    todo, seen = [given.stream for given in node.inputs], set[str]()
    while todo:
        stream = todo.pop()
        if stream in seen:
            continue
        seen.add(stream)
        for maker in graph.nodes.values():
            own = type(maker.template).__module__.startswith(
                ("headrace.operators", "headrace.pipeline")
            )
            passes = own and (maker.keyless or isinstance(maker.template, Dedup))
            if passes and stream in maker.outputs.values():
                todo += [given.stream for given in maker.inputs]
    return seen & set(graph.injectors)


def units_in_doubt(graph: Graph, ledger: Ledger) -> list[str]:
    """Sources without `unit=` whose newest time would be in this century in another unit."""
    told = []
    for stream, injector in graph.injectors.items():
        timing = injector.source.timing
        if timing.timestamp is None or timing.unit is not None:
            continue
        marks = [state.mark.newest for state in ledger.splits.get(stream, {}).values()]
        marks += [ledger.finished[stream].newest] if stream in ledger.finished else []
        newest = max((mark for mark in marks if mark < LATEST), default=0) + timing.lateness_us
        for unit, (low, high) in _THIS_CENTURY.items():
            if low <= newest < high:
                told.append(
                    f"the timestamps of {stream!r} are all in early 1970: is unit= right? "
                    f'(unit="{unit}")'
                )
    return told
