"""Progress after an epoch and the summary of a run, computed from graph and ledger. Pure."""

from __future__ import annotations

from headrace.model.values.time import BEGINNING, END
from headrace.operators.windows.aggregation import AFTER_THE_END
from headrace.pipeline.graph.graph import Graph, To
from headrace.plan.counters import Counters
from headrace.plan.epoch import CARRIED, FEEDBACK, Commit
from headrace.plan.ledger import Ledger
from headrace.plan.progress import EpochProgress, RunSummary, StoreUse, Totals, counted
from headrace.store.store import Store


def progress_of(
    pipeline: str,
    commit: Commit,
    ledger: Ledger,
    counters: Counters,
    seconds: float,
    watermark: int,
    store: StoreUse,
) -> EpochProgress:
    """The progress of a run after an epoch; `counters` and `store` are those of the run."""
    return EpochProgress(
        pipeline=pipeline,
        epoch=commit.epoch,
        records=commit.counters.records,
        records_total=counters.records,
        produced=sum(file.rows for file in commit.staged),
        seconds=seconds,
        watermark=watermark,
        newest=ledger.newest,
        state_bytes=ledger.state_bytes(),
        late=counters.late,
        dead=counters.dead,
        ended=watermark == END,
        counts=counters.metrics,
        store=store,
        carried=carried_rows(ledger),
        shed=counters.shed_of,
    )


def asked_of(store: Store, graph: Graph) -> StoreUse:
    """What this process has asked of a checkpoint's store, and of those of the sinks."""
    use = StoreUse(store.requests())
    for outlet in graph.outlets.values():
        own = outlet.sink.own_store()
        if own is not None:
            use = use + StoreUse(own.requests())
    return use


def carried_rows(ledger: Ledger) -> int:
    """How many records overloaded slots have carried over into the next epoch."""
    return sum(carried_by_slot(ledger).values())


def carried_by_slot(ledger: Ledger) -> dict[str, int]:
    """Label of a slot -> how many records it has carried over into the next epoch."""
    found: dict[str, int] = {}
    for file in (file for files in ledger.outbox.values() for file in files):
        if file.kind == CARRIED:
            found[file.label] = found.get(file.label, 0) + file.rows
    return found


def lowest_watermark(graph: Graph, ledger: Ledger) -> int:
    """The lowest input watermark of all computations."""
    if not graph.nodes:
        return min(ledger.outs.values(), default=BEGINNING)
    return min(ledger.ins.get(name, BEGINNING) for name in graph.nodes)


def summary_of(
    graph: Graph, epochs: int, counters: Counters, ledger: Ledger, reason: str, undelivered: int
) -> RunSummary:
    """How a run ended, with notes on what it left unfinished or skipped."""
    notes = []
    if counters.unfired:
        notes.append(f"{counters.unfired} timers were set by timers after the end and did not fire")
    if ledger.next_wall_timer() is not None and reason == "end":
        notes.append("wall-time timers that are not yet due stay in the checkpoint")
    fed_back = any(f.kind == FEEDBACK for files in ledger.outbox.values() for f in files)
    if fed_back and reason == "end":
        notes.append("a feedback loop never drained; its last records stay in the outbox")
    if counters.behind:
        notes.append(f"{counters.behind} records were produced behind the output watermark")
    after = sum(n for name, n in counters.metrics.items() if name.endswith(f".{AFTER_THE_END}"))
    if after:
        notes.append(
            f"{after} records came after all windows had closed, as the input had been read to its "
            'end before: for input that grows, run with until="caught_up"'
        )
    known = ledger.counters
    if counters.shed:
        streams = ", ".join(
            f"{n:,} of {stream!r}" for stream, n in sorted(counters.shed_of.items())
        )
        notes.append(f"overloaded slots have dropped records: {streams}")
    if waiting := carried_rows(ledger):
        notes.append(f"{counted(waiting, 'record')} of overloaded slots wait for the next run")
    if known.skipped:
        notes.append(
            f"about {known.skipped} records were skipped after crashes (at-most-once), in all runs "
            "of this checkpoint"
        )
    if undelivered:
        notes.append(
            f"{undelivered} rows whose delivery was uncertain stay undelivered (at-most-once)"
        )
    notes += unread(graph, counters)
    return RunSummary(
        graph.name,
        epochs,
        counters.records,
        counters.late,
        counters.dead,
        reason,
        tuple(notes),
        counters.metrics,
        known.skipped,
        undelivered,
        Totals(ledger.epoch, known.records, known.late, known.dead),
    )


def unread(graph: Graph, counters: Counters) -> list[str]:
    """Notes on rows that no step and no sink reads."""
    notes = [] if graph.outlets else ["nothing is written: no stream has a sink"]
    read = {given.stream for node in graph.nodes.values() for given in node.inputs}
    read |= {outlet.stream for outlet in graph.outlets.values()}
    lost: dict[str, int] = {}
    for owners in (graph.injectors, graph.nodes):
        for name, owner in owners.items():
            if isinstance(owner.errors, To) and owner.errors.stream not in read:
                stream = owner.errors.stream
                lost[stream] = lost.get(stream, 0) + counters.dead_of.get(name, 0)
    for stream, count in lost.items():
        if count:
            letters = counted(count, "dead letter")
            notes.append(f"{letters} went to {stream!r}, which nothing reads")
    late = dict.fromkeys(
        node.late.stream
        for node in graph.nodes.values()
        if isinstance(node.late, To) and node.late.stream not in read
    )
    if counters.late:
        notes += [f"late records go to {stream!r}, which nothing reads" for stream in late]
    return notes
