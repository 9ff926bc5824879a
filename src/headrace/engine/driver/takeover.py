"""The first acts of a driver on a checkpoint: directories, renamed computations, rings, checks."""

from __future__ import annotations

from headrace.engine.driver.setup import Setup
from headrace.engine.history.tables import refreshing
from headrace.errors import IncompatibleState
from headrace.log import paths
from headrace.log.entry import ACCEPT, VOID
from headrace.log.epochlog import EpochLog
from headrace.pipeline.graph.graph import Graph
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.changed_input import Compared, reads_from
from headrace.plan.decisions.hints import keys_of
from headrace.plan.decisions.next_step import Settings
from headrace.plan.decisions.skips import skipping
from headrace.plan.entries import AcceptBody, VoidBody
from headrace.plan.epoch import CARRIED
from headrace.plan.ledger import Ledger
from headrace.store.store import Store


def make_directories(store: Store, topology: Topology) -> None:
    """Creates every directory that tasks write to; tasks never create one."""
    for name in topology.keyed:
        store.make_directory(paths.state_directory(name))
    for name in refreshing(topology):
        store.make_directory(paths.tables_directory(name))
    for name in topology.graph.outlets:
        store.make_directory(paths.staged_directory(name))
    store.make_directory(paths.OUTBOX)
    store.make_directory(paths.WORK)
    store.make_directory(paths.MERGED)
    store.make_directory(paths.RINGS)
    store.make_directory(paths.log_directory(1, store.system.limits))


def adopt_names(topology: Topology, ledger: Ledger) -> dict[str, str]:
    """Moves state to a renamed computation, if that computation declares its former name."""
    renamed: dict[str, str] = {}
    for node in topology.keyed.values():
        for alias in node.aliases:
            if node.name not in ledger.slots and alias in ledger.slots:
                ledger.rename(alias, node.name)
                renamed[alias] = node.name
    for name in topology.keyed:
        if ledger.applied.is_taken(name, ledger.slots):
            raise IncompatibleState(
                f"computation {name!r} is new, and the state store {ledger.applied.backend!r} "
                "has cells under this name that belong to a computation which was renamed since: "
                "give it another name"
            )
    return renamed


def refuse_orphaned_feedback(topology: Topology, ledger: Ledger) -> None:
    """Refuses to lose records that wait for a consumer which no longer exists (D6, P2)."""
    keys = keys_of(topology)
    for consumer, files in ledger.outbox.items():
        now, before = keys.get(consumer, {}), ledger.keys.get(consumer, {})
        for file in files:
            carried, stream = file.kind == CARRIED, file.stream
            lost = not carried and stream not in topology.graph.feedback
            if now.get(stream) is None or now[stream] != before.get(stream, now[stream]) or lost:
                what = "carried" if carried else "feedback"
                raise IncompatibleState(
                    f"{file.rows} {what} records of {file.stream!r} wait for computation "
                    f"{consumer!r}, which no longer reads them, or by another key: run the "
                    'pipeline as it was until it has caught up (until="caught_up"), then change it'
                )


def skip_open_plan(log: EpochLog, graph: Graph, ledger: Ledger) -> None:
    """Voids the open plan of an at-most-once pipeline: its input is not read again."""
    if (void := skipping(graph, ledger)) is not None:
        log.append(VOID, void)
        ledger.voided(void.skipped, void.records)


def settings_for(setup: Setup, report_every: int) -> Settings:
    """What all plans of a run have in common."""
    options, parallelism = setup.options, setup.substrate.parallelism
    return Settings(
        until=options.until,
        tasks=tasks_for(setup),
        slots=first_slots(setup.topology, options.slots, parallelism),
        configured=configured_slots(setup.topology, options.slots),
        fingerprint=setup.fingerprint,
        short_records_max=options.short_records_max,
        report_every=report_every,
        services=setup.topology.uses_services(),
        limits=setup.store.system.limits,
        state=options.state.planned,
        shed=tuple(n for n, k in setup.topology.keyed.items() if k.sheds(options.overload)),
    )


def tasks_for(setup: Setup) -> int:
    """How many tasks a level has, unless the ledger says it: as many as can run at once (J10).

    Where Spark adds executors for tasks that wait, there is one for each slot that is asked for.
    """
    substrate, slots = setup.substrate, setup.options.slots or 0
    if not substrate.grows:
        return substrate.parallelism
    asked = (node.slots or slots for node in setup.topology.keyed.values())
    return max([substrate.parallelism, *asked])


def first_slots(topology: Topology, slots: int | None, parallelism: int) -> dict[str, int]:
    """How many slots the first ring of each computation has."""
    given = configured_slots(topology, slots)
    return {name: given.get(name, parallelism) for name in topology.keyed}


def configured_slots(topology: Topology, slots: int | None) -> dict[str, int]:
    """Computation -> how many slots this start asks for; others keep what they have."""
    wanted = {name: node.slots or slots for name, node in topology.keyed.items()}
    return {name: number for name, number in wanted.items() if number}


def remember_changes(log: EpochLog, ledger: Ledger, found: Compared) -> list[str]:
    """Records in the log which changed input was accepted, so that every later driver knows.

    Returns the notices for the user. An open plan that reads from such input names the old
    version: it is voided first.
    """
    if found.states:
        if (plan := ledger.open_plan) is not None and reads_from(plan, found.states):
            why = "what it reads has changed, and that was accepted"
            log.append(VOID, VoidBody(plan.epoch, why))
            ledger.voided()
        log.append(ACCEPT, AcceptBody(found.states))
        ledger.accepted(found.states)
    return found.notices
