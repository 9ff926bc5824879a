"""What a checkpoint says about its pipeline, running or not: for `headrace ps` and `status`.

All of it is read from the store: the log, the lease and the queue of requests. Nothing is written,
and a running pipeline is not disturbed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.control.queue import RequestQueue
from headrace.engine.commands import Remote
from headrace.engine.leading.lease import HELD, Lease, read_lease
from headrace.plan.control import ASKED, STOPPED, Outcome, Savepoint
from headrace.plan.deploy.code import CodeState
from headrace.plan.elastic.decision import Decision
from headrace.plan.elastic.figures import CacheFigures
from headrace.plan.ledger import Ledger
from headrace.plan.summary import carried_rows

_LOOK_S = 0.1

RUNNING, SILENT, ENDED, NEVER = "running", "silent", "ended", "never ran"


class ComputationOverview(msgspec.Struct, frozen=True):
    """One keyed computation."""

    slots: int
    watermark: int
    """Its input watermark, microseconds."""
    wanted: str = ""
    """A ring that is wanted and not yet committed, with its reason."""
    hit_rate: float | None = None
    """The share of keys whose objects were in memory, lately; None if it is not known."""
    prefetched: int = 0
    """Objects that were loaded ahead (`recovery="eager"`)."""
    prefetched_rate: float | None = None
    """The share of these that were used."""


class Overview(msgspec.Struct, frozen=True):
    """The state of a pipeline, as its checkpoint shows it."""

    location: str
    pipeline: str
    checkpoint: str
    """The id of the checkpoint."""
    state: str
    """running, paused, stopping, stopped, silent (its driver shows no sign of life), ended, or
    never ran."""
    epoch: int
    generation: int
    records: int
    late: int
    dead: int
    state_bytes: int
    wall: int
    """The wall time of the last plan or decision, microseconds."""
    paused: bool
    stop: str
    reason: str = ""
    """Why the last driver has ended, by its lease."""
    computations: dict[str, ComputationOverview] = {}
    savepoints: tuple[Savepoint, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    """The last decisions on requests, oldest first."""
    waiting: tuple[str, ...] = ()
    """Requests that no driver has decided yet."""
    decisions: tuple[Decision, ...] = ()
    """The last decisions of the balancer and the scaler, oldest first."""
    carried: int = 0
    """Records that overloaded slots have carried over into the next epoch."""
    shed: dict[str, int] = {}
    """Stream -> records of it that overloaded slots have dropped."""
    limits: dict[str, int] = {}
    """Overloaded slot, as computation/slot -> how many records it processes in an epoch."""
    code: str = ""
    """The fingerprint of the code in force; during a probation, that of the former code."""
    deploy: str = ""
    """The deploy that is under way, or how the last one has ended."""
    durable: int = 0
    """The last epoch whose state is durable, with all before it."""
    checkpoints: int = 0
    """How many checkpoints of state there were, where `checkpoint_every=` is more than 1."""
    checkpoint_epochs: int = 0
    """How many epochs the last of them covered."""
    checkpoints_late: int = 0
    """How many of them covered more epochs than asked for, as the store could not keep up."""


def overviews(remotes: Sequence[Remote]) -> list[Overview]:
    """The state of several pipelines; looks at each lease for as long as it is valid."""
    leases = [read_lease(remote.store) for remote in remotes]
    alive = [lease is None or lease.state != HELD for lease in leases]
    began = remotes[0].store.system.uptime_s() if remotes else 0.0
    while not all(alive):
        for at, remote in enumerate(remotes):
            before = leases[at]
            if alive[at] or before is None:
                continue
            now = read_lease(remote.store)
            lapsed = remote.store.system.uptime_s() - began > before.length_s
            alive[at] = lapsed or now != before
            leases[at] = None if lapsed and now == before else now
        if not all(alive):
            remotes[0].store.system.sleep(_LOOK_S)
    return [overview(remote, lease) for remote, lease in zip(remotes, leases, strict=True)]


def overview(remote: Remote, lease: Lease | None, known: Ledger | None = None) -> Overview:
    """The state of one pipeline; `lease` is that of a driver which shows signs of life or ended.

    `known` is the ledger, if it was read already.
    """
    ledger = remote.ledger() if known is None else known
    queue, waiting = RequestQueue(remote.store), []
    for request in queue.read_from(ledger.control.cursor + 1, 16):
        waiting.append(str(getattr(request, "verb", "damaged")))
    return Overview(
        remote.store.where(),
        remote.pipeline,
        remote.id,
        _state(ledger, lease),
        ledger.epoch,
        ledger.generation,
        ledger.counters.records,
        ledger.counters.late,
        ledger.counters.dead,
        ledger.state_bytes(),
        ledger.wall,
        ledger.control.paused,
        ledger.control.stop,
        lease.reason if lease is not None and lease.generation >= ledger.generation else "",
        {name: _computation(ledger, name) for name in sorted(ledger.rings)},
        tuple(ledger.control.savepoints.values()),
        ledger.control.outcomes,
        tuple(waiting),
        ledger.load.decisions,
        carried_rows(ledger),
        ledger.counters.shed_of,
        {label: limit.records for label, limit in ledger.limits.items()},
        ledger.code.fingerprint,
        _deploy(ledger.code),
        ledger.interval.durable(ledger.epoch),
        ledger.interval.taken,
        ledger.interval.span,
        ledger.interval.late,
    )


def _deploy(code: CodeState) -> str:
    found, last = code.probation, code.last
    if found is not None:
        led = "leads" if found.taken else "has not taken over yet"
        return (
            f"code {found.fingerprint} {led}, on probation (mode {found.mode}) since epoch "
            f"{found.epoch}: {found.commits} of {found.confirm_after} epochs"
        )
    if code.wish is not None:
        return f"code {code.wish.fingerprint} waits for the hand-over (mode {code.wish.mode})"
    if last is not None:
        why = f": {last.reason}" if last.reason else ""
        return f"the last one was {last.verdict} after epoch {last.epoch}{why}"
    return ""


def _state(ledger: Ledger, lease: Lease | None) -> str:
    if not ledger.generation:
        return NEVER
    if ledger.control.stop == STOPPED:
        return STOPPED
    if lease is None or lease.generation < ledger.generation:
        return SILENT
    if lease.state != HELD:
        return ENDED
    if ledger.control.stop == ASKED:
        return "stopping"
    return "paused" if ledger.control.paused else RUNNING


def _computation(ledger: Ledger, name: str) -> ComputationOverview:
    wanted, text = ledger.wanted.get(name), ""
    if wanted is not None:
        what = f"{wanted.slots} slots" if wanted.slots else f"{len(wanted.moves)} moves"
        text = f"{what} ({wanted.reason})" if wanted.reason else what
    use = ledger.load.objects.get(name, CacheFigures())
    return ComputationOverview(
        len(ledger.slots[name]),
        ledger.ins.get(name, 0),
        text,
        use.hit_rate,
        use.prefetched,
        use.prefetched_rate,
    )
