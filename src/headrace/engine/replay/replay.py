"""Replay: runs a past epoch again here, with the same records, clock, random numbers and answers.

1. The log gives the plan, the commit and the ledger before it (`epoch_at`).
2. The files that the epoch reads are pinned and opened, so that they cannot be collected.
3. The epoch runs in this process. It reads the checkpoint but never writes into it. External
   systems are not called: their logged answers are used.
4. The output of every unit of work must have the digest that the commit names.
5. If a digest differs, the epoch runs once more. If the two runs differ, the code is not
   deterministic, and the first hook that shows it is named. If they agree, the code, the input or
   the libraries have changed, and the state that differs is named.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec

from headrace.causal.journal import is_closed
from headrace.engine.driver.local import run_epoch
from headrace.engine.history.epoch_at import Past, not_kept, past_epoch
from headrace.engine.history.orders import work_order_of
from headrace.engine.history.rings import changes_of
from headrace.engine.replay.difference import Difference, differences, first_unlike
from headrace.engine.upkeep.pins import pinned
from headrace.errors import HeadraceError, IncompatibleState, InvalidPipeline, SourceError, by_name
from headrace.log import paths
from headrace.log.identity import read_identity
from headrace.model.source import Workspace
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import Report, WorkOrder
from headrace.plan.fingerprint import fingerprint
from headrace.plan.state.choice import refuse_without_history
from headrace.state.cache import WorkerCache
from headrace.store.location import checkpoint_store, no_checkpoint
from headrace.store.overlay import Overlay
from headrace.store.store import Store
from headrace.worker.watching.hook_recorder import HookCall, ObservedRuntime, Observer

PIN_S = 3600.0
DEBUG_PIN_S = 24 * 3600.0

_REFUSED = ("SourceError", "StoreError", "CorruptCheckpoint", "IncompatibleState")
"""Errors of a unit of work which say that the epoch cannot run again."""


class Replay(msgspec.Struct):
    """The result of running an epoch again."""

    pipeline: str
    epoch: int
    wall: int
    """The wall clock of the plan."""
    records: int
    equal: bool
    """Whether the output of every unit of work is the one that the commit names."""
    calls: list[HookCall]
    """The recorded hook calls that were asked for, in order."""
    calls_total: int
    """How many such calls there were; only a limited number is recorded."""
    differences: list[Difference]
    warnings: list[str]


def replay(
    pipeline: PipelineBuilder,
    *,
    checkpoint: str | os.PathLike[str] | Store,
    epoch: int,
    computation: str | None = None,
    key: Any = None,
    debug: bool = False,
) -> Replay:
    """Runs a committed epoch again, and compares its output with its commit.

    - `checkpoint`: where the pipeline has run. Nothing in it is changed, except for a pin while
      the replay runs.
    - `computation`, `key`: whose hook calls to report; all of them if not given.
    - `debug`: stops in the debugger at the first such call.

    No Spark is needed, and external systems are not called. If user code depends on the order of
    sets, start Python with PYTHONHASHSEED=0, as runs on Spark do.
    """
    topology = pipeline.freeze()
    store = checkpoint_store(checkpoint)
    return replay_epoch(topology, store, epoch, computation=computation, key=key, debug=debug)


def replay_epoch(
    topology: Topology,
    store: Store,
    epoch: int,
    *,
    computation: str | None = None,
    key: Any = None,
    debug: bool = False,
    prepared: bool = False,
) -> Replay:
    """`replay` for a frozen pipeline; `prepared`: its sources are prepared already."""
    graph = topology.graph
    identity = read_identity(store)
    if identity is None:
        raise no_checkpoint(store)
    if identity.pipeline != graph.name:
        raise IncompatibleState(
            f"the checkpoint {store.where()} belongs to pipeline {identity.pipeline!r}, not "
            f"{graph.name!r}"
        )
    if computation is not None and computation not in graph.nodes:
        raise InvalidPipeline(
            f"there is no computation {computation!r}; there are: {', '.join(graph.nodes)}"
        )
    past = past_epoch(store, epoch)
    refuse_without_history(past.ledger, f"a replay of epoch {epoch}")
    warnings = _warnings(topology, past)
    _refuse_other_wiring(topology, past)
    alone = one_at_a_time(topology)
    order = work_order(store, identity.id, past)
    observer = Observer(computation, key, debug=debug)
    seconds = DEBUG_PIN_S if debug else PIN_S
    with (
        pinned(
            store,
            f"replay of epoch {epoch}",
            past.files(),
            seconds=seconds,
            log_from=min([past.log_from, *past.positions()]),
            determinants=past.plan.determinants,
        ),
        readable_sources(alone, store, prepared=prepared),
    ):
        reports, overlay = _run(alone, store, order, past, observer)
        found = differences(alone, past, reports, store, overlay)
        if found:
            _explain(found, alone, store, order, past)
    return Replay(
        pipeline=graph.name,
        epoch=epoch,
        wall=past.plan.wall,
        records=past.commit.counters.records,
        equal=not found,
        calls=observer.calls,
        calls_total=observer.total,
        differences=found,
        warnings=warnings,
    )


def _run(
    topology: Topology, store: Store, order: WorkOrder, past: Past, observer: Observer
) -> tuple[list[Report], Overlay]:
    overlay = Overlay(store)
    limits = store.system.limits
    riding = {paths.log_entry(position, limits) for position in past.positions()}
    if overlay.keep_open(sorted(past.files() | riding)):
        raise not_kept(store, past.epoch)
    answers = past.plan.determinants
    if answers and is_closed(store, paths.determinants_directory(answers)):
        raise IncompatibleState(
            f"epoch {past.epoch} called external systems, and their answers are not kept any more; "
            "a replay never calls: see retain_epochs= (headrace run --retain N)"
        )
    runtime = ObservedRuntime(topology, overlay, WorkerCache(), observer)
    reports = run_epoch(runtime, order)
    for report in reports:
        for name, data in report.riders.items():
            overlay.write(name, data)  # to be compared with the commit
        if report.missing:
            raise IncompatibleState(
                f"epoch {past.epoch} cannot be run again: changes of state that it began with were "
                f"lost before they were durable: {', '.join(report.missing)}. Later epochs have "
                "what was made again; a checkpoint interval of 1 keeps every epoch"
            )
        if report.error in _REFUSED:
            raise by_name(report.error)(
                f"epoch {past.epoch} cannot be run again, {report.label}: {report.message}"
            )
        known = past.commit.inputs.get(report.label, report.input)
        if report.error is None and report.input != known:
            raise SourceError(
                f"epoch {past.epoch} cannot be run again: what {report.label} read has changed "
                "since, though its size and its ends are the same. Put the old file back"
            )
    return reports, overlay


def _explain(
    found: Sequence[Difference], topology: Topology, store: Store, order: WorkOrder, past: Past
) -> None:
    """Runs the epoch twice more, and names the first hook that is not deterministic."""
    first = found[0]
    runs = []
    for _ in range(2):
        observer = Observer()
        try:
            _run(topology, store, order, past, observer)
        except HeadraceError:
            return
        runs.append(observer.calls)
    if (found_in := first_unlike(*runs)) is not None:
        first.repeats = False
        first.call, first.other = found_in


def work_order(store: Store, checkpoint: str, past: Past) -> WorkOrder:
    """What the tasks of a past epoch are given."""
    changes = changes_of(store, past.ledger, past.plan)
    return work_order_of(past.ledger, past.plan, changes, checkpoint, past.commit.determinants)


def _warnings(topology: Topology, past: Past) -> list[str]:
    found = []
    if past.plan.fingerprint != fingerprint(topology.graph):
        found.append("the code has changed since this epoch ran; differences are expected")
    if sys.flags.hash_randomization:
        found.append(
            "this Python has a random hash seed, so code that depends on the order of a set may "
            "differ: start it with PYTHONHASHSEED=0"
        )
    if past.voided:
        count = len(past.voided)
        found.append(
            f"{count} earlier plan{'s' * (count > 1)} of this epoch had to be voided; the last "
            f"reason: {past.voided[-1][:300]}"
        )
    return found


def _refuse_other_wiring(topology: Topology, past: Past) -> None:
    """Refuses a pipeline whose computations with state or sources are not those of the plan."""
    for what, then, now in (
        ("computations with state", set(past.plan.rings), set(topology.keyed)),
        ("sources", set(past.plan.injectors), set(topology.graph.injectors)),
    ):
        if then != now:
            gone, new = sorted(then - now), sorted(now - then)
            told = [f"{', '.join(gone)} took part in it"] * bool(gone)
            told += [f"{', '.join(new)} did not take part"] * bool(new)
            raise IncompatibleState(
                f"epoch {past.epoch} cannot be run with this pipeline, which has other {what}: "
                f"{'; '.join(told)}. Use the code of that time"
            )


def one_at_a_time(topology: Topology) -> Topology:
    """Processes keys one after another: same results, and a debugger needs one thread."""
    if all(node.concurrency == 1 for node in topology.graph.nodes.values()):
        return topology
    nodes = {name: replace(node, concurrency=1) for name, node in topology.graph.nodes.items()}
    return Topology(replace(topology.graph, nodes=nodes))


@contextmanager
def readable_sources(topology: Topology, store: Store, *, prepared: bool) -> Iterator[None]:
    """Sources that can read planned ranges again, each over a copy of its workspace."""
    if prepared:
        yield
        return
    for name, injector in topology.graph.injectors.items():
        # Our own sources only read at a path. Others may write there, and so into the checkpoint.
        is_ours = type(injector.source).__module__.startswith("headrace.sources")
        copy = Overlay(store, gives_paths=is_ours).below(f"{paths.SOURCES}/{paths.safe(name)}")
        try:
            injector.source.look(Workspace(copy))
        except HeadraceError as error:
            raise SourceError(f"stream {name!r} cannot be read again: {error}") from error
    yield
