"""Hooks that call outside services: each call has one effect there, and one answer counts.

The simulated outside records every call and never gives the same answer twice, so that a repeated
call shows in the published rows:

- `charge` must not repeat: a record reaches it at most once, whatever dies. Where it is not known
  whether the call had its effect, "uncertain" is the answer, and does not change later.
- A failed call gives the same error in all tries of a plan. If the plan is voided, the next plan
  calls again, because the call had no effect. In some schedules a failure stops the run.
- `lookup` may be called again, always under the same key; one answer counts.
- `rate` is logged with the commit: any attempt may call, the commit says whose answer counts.

In some schedules `charge` takes batches (`ctx.call_many`). Every call of a batch keeps these
promises for itself.

`lookup` is called one level further down, for the productions of `charge`: its calls are named by
lineage.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from headrace.errors import CallUncertain, ServiceError
from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.record import Record, Timer
from headrace.model.services import service
from headrace.model.source import Timing
from headrace.model.state import state
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.sinks.memory import Memory
from headrace.testing.simulator.checkers.consumer import Row
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.contract import SimulationOutcome
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.workloads.records import LATENESS_US, stamped
from headrace.testing.simulator.workloads.source import SimulatedSource

if TYPE_CHECKING:
    from headrace.testing.simulator.simulation import Simulation

UNCERTAIN, FAILED = "uncertain", "failed"
Reply = int | str
"""What a hook got: an answer, or how the call failed."""


class Outside:
    """The services, with a record of all calls. Some calls fail, before or after their effect."""

    def __init__(self, random: Random) -> None:
        seed = random.getrandbits(32)
        self._random = Random(seed)
        self.batched = Random(seed + 1).random() < 0.4
        """Whether `charge` takes batches. Then every record has a twin that is charged with it."""
        self._fails = random.choice((0.0, 0.0, 0.1))
        self.stops = bool(self._fails) and self._random.random() < 0.5
        """Whether hooks that meet a failure stop the run; then only a few fail."""
        self._failures_left = self._random.randint(1, 3) if self.stops else 1_000_000
        self.answers: dict[tuple[str, str], list[int]] = {}
        """(service, question) -> every answer that the service gave."""
        self.keys: dict[tuple[str, str], set[str]] = {}
        self.replies: dict[tuple[str, str], dict[int, Reply]] = {}
        """(service, question) -> what hooks got, by the wall time of their plan."""
        self._failed: dict[tuple[str, str], int] = {}
        """(service, question) -> how often it has failed."""
        self._asked: dict[tuple[str, str], dict[int, int]] = {}
        """(service, question) -> how often it had failed when a plan first asked, by wall time."""
        self._given = 0
        self.broken = ""
        """A guarantee that was broken towards the outside, which hooks cannot notice themselves."""
        self.note: Callable[[str], None] = lambda line: None

    def reach(self, name: str, what: str, key: str) -> int:
        """A call of a hook arrives at the service."""
        asked = (name, what)
        self.keys.setdefault(asked, set()).add(key)
        if self._fails_now(asked):
            self.note(f"{name} {what} fails before it had its effect")
            raise ConnectionError("refused")
        self._given += 1
        self.answers.setdefault(asked, []).append(self._given)
        self.note(f"{name} {what} reaches the outside")
        if name == "charge" and len(self.answers[asked]) > 1:
            self.broken = f"{name} {what} reached the outside {len(self.answers[asked])} times"
        if len(self.keys[asked]) > 1:
            self.broken = f"{name} {what} came under the keys {sorted(self.keys[asked])}"
        if self._fails_now(asked):
            self.note(f"{name} {what} fails after it had its effect")
            raise ConnectionResetError("connection lost")
        return self._given

    def _fails_now(self, asked: tuple[str, str]) -> bool:
        if self._random.random() >= self._fails or not self._failures_left:
            return False
        self._failures_left -= 1
        self._failed[asked] = self._failed.get(asked, 0) + 1
        return True

    def ask(self, name: str, what: str, wall: int, call: Callable[[], int]) -> Reply:
        """What a hook of the plan with this wall time gets."""
        before, asked = self._given, (name, what)
        self._note_asked(asked, wall)
        reply: Reply
        failure: ServiceError | None = None
        try:
            reply = call()
        except CallUncertain:
            reply = UNCERTAIN
            self.note(f"{name} {what} is uncertain")
        except ServiceError as error:
            reply, failure = FAILED, error
        if self._given == before and asked in self.replies:
            self.note(f"{name} {what} is answered from the log")
        if name != "rate":
            self._judge(asked, wall, reply)
        if failure is not None and self.stops:
            raise failure
        return reply

    def _note_asked(self, asked: tuple[str, str], wall: int) -> None:
        self._asked.setdefault(asked, {}).setdefault(wall, self._failed.get(asked, 0))

    def ask_many(
        self, name: str, whats: list[str], wall: int, call: Callable[[], list[Any]]
    ) -> list[Reply]:
        """What a hook gets for many calls; each is judged as a single one."""
        found: list[Any] = []
        for what in whats:
            self._note_asked((name, what), wall)

        def reply(place: int) -> int:
            if not found:
                found.extend(call())
            if isinstance(found[place], Exception):
                raise found[place]
            return int(found[place])

        return [self.ask(name, what, wall, partial(reply, i)) for i, what in enumerate(whats)]

    def _judge(self, asked: tuple[str, str], wall: int, reply: Reply) -> None:
        """All tries of a plan get the same reply, and so do the plans after one with an answer.

        A failure is reported to the plan in which it happened. Zombie tasks of older plans may
        see it as well.
        """
        by_plan = self.replies.setdefault(asked, {})
        others = {t for w, t in by_plan.items() if w == wall or FAILED not in (t, reply)}
        by_plan.setdefault(wall, reply)
        if others - {reply}:
            all_replies = sorted(map(str, others | {reply}))
            self.broken = f"hooks that asked {' '.join(asked)} got {all_replies}"
        older = [t for w, t in by_plan.items() if w < wall and t != FAILED]
        if reply == FAILED and older:
            self.broken = f"{' '.join(asked)} failed, though a plan before got {older}"
        known = self._asked[asked]
        if reply == FAILED and wall == max(known) and self._failed.get(asked, 0) == known[wall]:
            self.broken = f"{' '.join(asked)}: a plan got a failure of a plan before it"

    def check(self) -> None:
        """Raises Violation where a guarantee was broken."""
        if self.broken:
            raise Violation(self.broken)


_outside = Outside(Random(0))


@service
def charge(what: str, idempotency_key: str) -> int:
    """Must not repeat."""
    return _outside.reach("charge", what, idempotency_key)


@service(batch=2)
def charge_batch(whats: list[str], idempotency_keys: list[str]) -> list[int | Exception]:
    """Must not repeat, and takes several at once. One may fail alone."""
    found: list[int | Exception] = []
    for what, key in zip(whats, idempotency_keys, strict=True):
        try:
            found.append(_outside.reach("charge", what, key))
        except ConnectionError as error:
            found.append(error)
    return found


@service(uncertain="again")
def lookup(what: str, idempotency_key: str) -> int:
    """May be called again."""
    return _outside.reach("lookup", what, idempotency_key)


@service(log="with the commit")
def rate(what: str, idempotency_key: str) -> int:
    """May be called by every attempt."""
    return _outside.reach("rate", what, idempotency_key)


class Order(Computation):
    """Calls `charge` for every record, and once more when its timer fires."""

    charged: list[str] = state()

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        what = f"{record.value['id']}"
        if record.value["id"] % 3 == 0:
            ctx.set_timer(record.value["id"], after="30us")
        self._charge(what, ctx)

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        self._charge(f"{timer.tag}-again", ctx)

    def _charge(self, what: str, ctx: Context) -> None:
        wall = ctx.now()
        whats = [what, *(f"{what}-twin-{i}" for i in range(2))] if _outside.batched else [what]
        rates = [_outside.ask("rate", w, wall, partial(ctx.call, rate, w)) for w in whats]
        if _outside.batched:
            ask = partial(ctx.call_many, charge_batch, whats, errors="return")
            replies = _outside.ask_many("charge", whats, wall, ask)
        else:
            replies = [_outside.ask("charge", what, wall, lambda: ctx.call(charge, what))]
        for one, reply, found in zip(whats, replies, rates, strict=True):
            self.charged.append(f"{reply}")
            ctx.produce({"id": one, "charge": reply, "rate": found})


class Book(Computation):
    """Looks up what was charged."""

    looked: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        what = record.value["id"]
        reply = _outside.ask("lookup", what, ctx.now(), lambda: ctx.call(lookup, what))
        self.looked += 1
        ctx.produce({**record.value, "lookup": reply})


class Calls:
    """The workload."""

    name = "calls"

    def __init__(self, random: Random) -> None:
        def record(i: int, at: int) -> dict[str, int]:
            return {"id": i, "key": i % 3, "at": at}

        global _outside
        self.outside = _outside = Outside(random)
        self.count = random.randint(4, 12)
        self.records = {"in": stamped(random, self.count, record)}
        self._published: dict[str, dict[str, Any]] = {}
        self._rates: dict[int, list[Reply]] = {}
        self._simulation: Simulation | None = None
        self.stops_with = "ServiceError" if self.outside.stops else ""

    def attach(self, simulation: Simulation) -> None:
        """Sets the simulation that this workload runs in."""
        self._simulation = simulation
        chance = simulation.chance
        self.outside.note = chance.note
        if chance.kinds and chance.random.random() < 0.2:
            # One driver puts an answer and sleeps, another relies on it, and then a power loss
            # removes it.
            chance.kinds |= {kinds.DRIVER_PAUSES, kinds.POWER_FAILS}
            chance.budget += 4
        if chance.kinds and chance.face == kinds.OBJECTS:
            # One driver sleeps before a call, while others close its epoch and collect.
            chance.kinds |= {kinds.DRIVER_PAUSES, kinds.RIVAL_DRIVER}
            chance.budget += 8
            simulation.epoch_records = max(1, simulation.epoch_records // 3)

    def pipeline(self) -> PipelineBuilder:
        """Two levels, whose hooks both call services."""
        p = PipelineBuilder(self.name)
        timing = Timing(timestamp="at", lateness=f"{LATENESS_US}us")
        p.read("in", SimulatedSource(timing, self.records["in"]))
        # Services are used through a helper, which the class itself does not mention.
        p.compute(Order, inputs={"in": "key"}, outputs="orders", services=True)
        p.compute(Book, inputs={"orders": "id"}, outputs="booked", services=True)
        p.stream("booked").write(Memory())
        return p

    def appeared(self, sink: str, epoch: int, rows: list[Row]) -> None:
        """Published rows hold what the outside answered."""
        self.outside.check()
        for row, _ in rows:
            what = row["id"]
            if what in self._published:
                raise Violation(f"{what} was published twice: {self._published[what]} and {row}")
            self._published[what] = row
            self._rates.setdefault(epoch, []).append(row["rate"])
            for name in ("charge", "lookup", "rate"):
                given = self.outside.answers.get((name, what), [])
                if row[name] not in (UNCERTAIN, FAILED, *given):
                    raise Violation(f"{name} {what}: {row[name]} was published, {given} given")
            if row["lookup"] == UNCERTAIN or row["rate"] == UNCERTAIN:
                raise Violation(f"{what} is uncertain, though it may be called again: {row}")

    def check(self, outcome: SimulationOutcome) -> None:
        """Every record counts once; states, commits and the log of calls agree with the output."""
        self.outside.check()
        expected = {f"{i}" for i in range(self.count)}
        expected |= {f"{i}-again" for i in range(0, self.count, 3)}
        if self.outside.batched:
            expected |= {f"{what}-twin-{i}" for what in expected for i in range(2)}
        if self._published.keys() != expected:
            raise Violation(f"published {sorted(self._published)} of {sorted(expected)}")
        kept = [reply for _, s in outcome.checkpoint.scan("Order") for reply in s["charged"]]
        shown = [str(row["charge"]) for row in self._published.values()]
        if sorted(kept) != sorted(shown):
            raise Violation(f"charges {kept} are kept, {shown} were published")
        self._check_commits(outcome)
        self._check_journal()

    def _check_commits(self, outcome: SimulationOutcome) -> None:
        """An answer that travels with the commit is the one that the epoch used.

        What a slot carries over is published by a later epoch.
        """
        logged: list[Reply] = []
        used: list[Reply] = []
        for commit in outcome.commits:
            for packed in commit.get("determinants", {}).values():
                for _, _, kind, value, _ in _unpacked(base64.b64decode(packed)):
                    logged.append(_reply({"kind": kind, "value": base64.b64encode(value)}))
            used += self._rates.get(commit["epoch"], [])
            if any(file["kind"] == "carried" for file in commit["outbox"]):
                continue
            if sorted(map(str, logged)) != sorted(map(str, used)):
                raise Violation(
                    f"up to epoch {commit['epoch']} the rates {used} were used, commits have "
                    f"{logged}"
                )
            logged, used = [], []

    def _check_journal(self) -> None:
        """Results that are still on disk agree with the output, uncertain ones included."""
        if self._simulation is None:
            return
        published = [row[name] for row in self._published.values() for name in ("charge", "lookup")]
        waiting = [str(reply) for reply in published]
        disk, root = self._simulation.disk, "/checkpoint/determinants"
        names = disk.list(root)
        span = self._simulation.tuning.limits.closed_span_epochs
        for directory in (name for name in names if name.isdigit()):
            # A late task may have put something where the results that counted were deleted.
            markers = {f"{directory}.closed", f"span-{int(directory) // span:06d}.closed"}
            if markers.intersection(names):
                continue
            last: dict[str, tuple[int, str]] = {}
            for file in disk.list(f"{root}/{directory}"):
                if not file.endswith(".result"):
                    continue
                data = bytes(disk.file(f"{root}/{directory}/{file}").data)
                reply = str(_reply(json.loads(data.split(b"\n", 1)[1])["outcome"]))
                call, _, turn = file.removesuffix(".result").partition("-")
                if (found := last.get(call)) and FAILED not in (reply, found[1]):
                    raise Violation(f"{file} says {reply}, another round of it {found[1]}")
                last[call] = max(last.get(call, (0, "")), (int(turn), reply))
            for call, (_, reply) in last.items():
                if reply not in waiting:
                    raise Violation(f"{call} says {reply}, but that was not published")
                waiting.remove(reply)


def _unpacked(data: bytes) -> list[Any]:
    """The answers that a commit carries, decoded without the engine."""
    rows = pa.decompress(data[8:], int.from_bytes(data[:8], "big"), "zstd", asbytes=True)
    found: list[Any] = msgspec.msgpack.decode(rows)
    return found


def _reply(answer: dict[str, Any]) -> Reply:
    """The reply in a logged outcome, decoded from JSON without the engine."""
    if answer["kind"] != "answer":
        return str(answer["kind"])
    found: int = msgspec.msgpack.decode(base64.b64decode(answer["value"]))
    return found
