"""Deliberate bugs, each a clause of the protocol taken out: the simulator must find them.

A mutation is a context manager that breaks the engine while it is entered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch

import msgspec
from tests.simulation import (
    mutations_of_control,
    mutations_of_copies,
    mutations_of_deploys,
    mutations_of_intervals,
    mutations_of_levels,
    mutations_of_limits,
    mutations_of_load,
    mutations_of_objects,
    mutations_of_records,
    mutations_of_riders,
    mutations_of_rings,
    mutations_of_runs,
    mutations_of_state_stores,
)

from headrace.causal import journal, outside
from headrace.causal.journal import CallResult, Intent, Journal
from headrace.engine.driver import driver as driver_module
from headrace.engine.driver.driver import Driver
from headrace.engine.upkeep import collection
from headrace.errors import StoreError
from headrace.log import paths
from headrace.log.entry import GENERATION, encode_entry
from headrace.log.epochlog import EpochLog, FailAtOnce
from headrace.model.services import BEFORE_USE, RAISE, CallOptions
from headrace.plan.decisions import verdict as verdict_module
from headrace.plan.decisions.next_step import Run
from headrace.plan.ledger import Ledger
from headrace.plan.rings import changes
from headrace.plan.rings.folding import SlotManifests
from headrace.plan.units import labels_of
from headrace.plan.watermarks import Mark
from headrace.sinks import epoch_directory
from headrace.sinks import files as file_sinks
from headrace.sinks.files import Claim, FileSink
from headrace.sinks.high_water import HighWater, epoch_name
from headrace.state import cache as cache_module
from headrace.state import compaction
from headrace.state.cache import WorkerCache
from headrace.store import files
from headrace.store.store import ForwardingStore
from headrace.system import System
from headrace.worker.exchange import inputs
from headrace.worker.records.traced_context import TracedContext
from headrace.worker.slot_run import SlotRun
from headrace.worker.timers import TimerChanges

Mutation = Callable[[], AbstractContextManager[Any]]

# A. The log


def commits_overwrite() -> AbstractContextManager[Any]:
    """A3: an entry is renamed to its position, not linked: it replaces what lies there."""

    def try_put(self: EpochLog, position: int, data: bytes) -> bool:
        self._store.make_directory(self._directory(position))
        self._store.write(self._name(position), data)
        return True

    return patch.object(EpochLog, "_try_put", try_put)


def fencing_is_ignored() -> AbstractContextManager[Any]:
    """A1: a driver whose position is taken takes it for its own."""
    put = EpochLog._put

    def careless(self: EpochLog, position: int, entry: Any, tail: bytes = b"") -> Any:
        found = put(self, position, entry, tail)
        return None if entry.kind != GENERATION else found

    return patch.object(EpochLog, "_put", careless)


def generations_are_equal() -> AbstractContextManager[Any]:
    """A2: a driver takes over with the highest generation it saw, not with one more."""

    def take_over(self: EpochLog, waiter: Any = None, body: Any = None) -> Iterator[Any]:
        while True:
            yield from self.follow()
            generation = max(self.generation, 1)
            entry = self._entry(GENERATION, generation, body(generation))
            if self._put(self.position + 1, entry) is None:
                self.position += 1
                self.generation = generation
                self._waiter = waiter or FailAtOnce()
                return

    return patch.object(EpochLog, "take_over", take_over)


def unsettled_puts_are_left() -> AbstractContextManager[Any]:
    """A2: a put that failed and cannot be seen is tried at the next position."""

    def put(self: EpochLog, position: int, entry: Any, tail: bytes = b"") -> Any:
        data = encode_entry(entry, tail)
        for _ in range(20):
            try:
                if self._try_put(self.position + 1, data):
                    return None
            except (OSError, StoreError):
                if self._read_back(self.position + 1) is None:
                    self.position += 1
                    continue
            found = self._read_back(self.position + 1)
            if found is not None:
                return None if found.nonce == entry.nonce else found
        raise StoreError("gone")

    return patch.object(EpochLog, "_put", put)


def retries_have_fresh_nonces() -> AbstractContextManager[Any]:
    """A2: a put that is repeated carries another nonce, so its own entry looks foreign."""
    put = EpochLog._put

    def fresh(self: EpochLog, position: int, entry: Any, tail: bytes = b"") -> Any:
        found = put(self, position, entry, tail)
        if found is None and self.read(position) is not None and self._doubts:
            self._doubts = False
            return self.read(position)
        return found

    try_put = EpochLog._try_put

    def doubting(self: EpochLog, position: int, data: bytes) -> bool:
        try:
            landed = try_put(self, position, data)
        except (OSError, StoreError):
            self._doubts = True
            raise
        self._doubts = not landed
        return landed

    stack = ExitStack()
    stack.enter_context(patch.object(EpochLog, "_doubts", False, create=True))
    stack.enter_context(patch.object(EpochLog, "_put", fresh))
    stack.enter_context(patch.object(EpochLog, "_try_put", doubting))
    return stack


def voids_close_epochs() -> AbstractContextManager[Any]:
    """A5: what a voided plan was to read counts as read."""
    voided = Ledger.voided

    def closing(self: Ledger, *given: Any, **options: Any) -> None:
        plan = self.open_plan
        for read in (read for task in plan.reads for read in task) if plan else ():
            known = self.splits.get(read.stream, {}).get(read.split)
            if known is not None:
                state = msgspec.structs.replace(known, position=read.range.end)
                self.splits[read.stream] = {**self.splits[read.stream], read.split: state}
        voided(self, *given, **options)

    return patch.object(Ledger, "voided", closing)


def wall_time_goes_back() -> AbstractContextManager[Any]:
    """A6: a plan has the driver's wall time, however slow its clock."""
    decide = driver_module.decide

    def decided(*args: Any, wall: int, **options: Any) -> Any:
        decision = decide(*args, wall=wall, **options)
        if isinstance(decision, Run):
            return Run(msgspec.structs.replace(decision.plan, wall=wall))
        return decision

    return patch.object(driver_module, "decide", decided)


def files_are_not_synced() -> AbstractContextManager[Any]:
    """B1, A3: what is written is not on disk when it is reported."""
    write = files._write_through

    def careless(path: Any, data: bytes, system: System, *, durable: bool = True) -> None:
        write(path, data, system, durable=False)

    return patch.object(files, "_write_through", careless)


def names_are_not_synced() -> AbstractContextManager[Any]:
    """B1, A3: a name that was made may vanish again."""
    stack = ExitStack()
    for module in (files, epoch_directory):
        stack.enter_context(patch.object(module, "sync_directory", lambda path, system: None))
    return stack


# B. One output per producer


def digests_are_ignored() -> AbstractContextManager[Any]:
    """B3: nobody looks which output of a producer its consumers saw."""

    def by_host(topology: Any, task: Any, reports: Any) -> Any:
        by_label = {report.label: report for report in reports}
        for report in reports:
            if report.error == "Torn":
                return verdict_module.RunAgain(report.message)
        found: dict[str, list[Any]] = {}
        for host in (*topology.graph.injectors, *topology.keyed):
            found[host] = []
            for label in labels_of(topology, task, host):
                if label not in by_label:
                    return verdict_module.RunAgain(f"no report of {label}")
                found[host].append(by_label[label])
        return found

    return patch.object(verdict_module, "_by_host", by_host)


def missing_blobs_are_overlooked() -> AbstractContextManager[Any]:
    """B2: nobody counts a producer's blobs."""

    return patch.object(inputs.Received, "_check_blobs", lambda *given: None)


# C. State


def dropped_attempts_stay_cached() -> AbstractContextManager[Any]:
    """C4: what a task left in a cache is taken over, whether it was committed or not."""

    def settle(cached: Any, known: dict[str, int]) -> None:
        pending, cached.pending = cached.pending, None
        if pending is not None:
            for name, changes in pending.changes.items():
                cached.indexes[name].apply(changes)
            for key, state, again in pending.objects:
                cached.objects.give(key, state, again=again)
            if pending.chain in known:
                cached.chain, cached.epoch = pending.chain, known[pending.chain]

    return patch.object(WorkerCache, "_adopt_pending", staticmethod(settle))


def caches_do_not_catch_up() -> AbstractContextManager[Any]:
    """C4: a worker whose slot another one ran last goes on from what it has."""
    return patch.object(cache_module, "_catch_up", lambda cached, newer: None)


def tombstones_always_go() -> AbstractContextManager[Any]:
    """C2: a merge drops deletions although something older lies under them."""
    return patch.object(compaction, "is_bottom", lambda run, entries: True)


def merges_take_any_place() -> AbstractContextManager[Any]:
    """C2: a merged run counts as the newest, whatever was written since."""
    adopt = SlotManifests._adopt

    def newest(self: SlotManifests, adoption: Any, position: int) -> None:
        entry = msgspec.structs.replace(adoption.entry, last_epoch=2**40)
        adopt(self, msgspec.structs.replace(adoption, entry=entry), position)

    return patch.object(SlotManifests, "_adopt", newest)


def entries_are_not_cut() -> AbstractContextManager[Any]:
    """C1: under another ring a slot loses what its old neighbour had written."""
    return patch.object(changes, "inherited", lambda entries, one, new: ())


def collection_forgets_the_window() -> AbstractContextManager[Any]:
    """C8: only what the last commit names is kept."""
    needed_by = driver_module.needed_by

    def careless(history: Any, *given: Any) -> Any:
        kept, history._left = history._left, deque()
        try:
            return needed_by(history, *given)
        finally:
            history._left = kept

    return patch.object(driver_module, "needed_by", careless)


def collection_takes_the_newest() -> AbstractContextManager[Any]:
    """C8: files of the newest epoch count as orphans."""
    collect = collection.collect

    def careless(store: Any, log: Any, needed: Any) -> int:
        gone = collect(store, log, needed)
        for name in store.list(paths.STATE):
            directory = f"{paths.STATE}/{name}"
            for found in store.list(directory):
                if found.startswith(f"{needed.closed:012d}"):
                    store.delete(f"{directory}/{found}")
        return gone

    return patch.object(collection, "collect", careless)


# D. Time


def timers_stay_after_firing() -> AbstractContextManager[Any]:
    """D9: an event timer that has fired is still there."""
    set_timer = TimerChanges.set

    def keeping(self: Any, name: str, cell: Any, timed: Any) -> None:
        if name != "event" or timed is not None:
            set_timer(self, name, cell, timed)

    return patch.object(TimerChanges, "set", keeping)


def timers_hold_nothing() -> AbstractContextManager[Any]:
    """D1: the output watermark passes timers that have not fired."""
    return patch.object(Mark, "held", lambda self, hold: self)


def late_is_judged_too_late() -> AbstractContextManager[Any]:
    """D2: a record is late against the watermark of its own epoch."""
    init = SlotRun.__init__

    @wraps(init)
    def judged(self: Any, *args: Any, now: int, **options: Any) -> None:
        init(self, *args, now=now, **options)
        self.before = now

    return patch.object(SlotRun, "__init__", judged)


# E. Determinants


def calls_have_no_intents() -> AbstractContextManager[Any]:
    """E2: who calls says so to nobody."""

    def unsaid(self: Journal, full: str, name: str, request: str, options: Any) -> Any:
        return Intent(name, "nonce", self._system.wall_s() + 60, request), True

    return patch.object(Journal, "_intend", unsaid)


def intents_are_everybodys() -> AbstractContextManager[Any]:
    """E2: who finds a stranger's intent calls as well."""
    intend = Journal._intend

    def mine(self: Journal, *args: Any) -> Any:
        return intend(self, *args)[0], True

    return patch.object(Journal, "_intend", mine)


def answers_are_used_before_they_are_logged() -> AbstractContextManager[Any]:
    """E2: a hook has the answer of its own call, whatever is read back."""
    settle = Journal._put_result

    def hasty(self: Journal, file: str, outcome: Any) -> Any:
        return msgspec.structs.replace(settle(self, file, outcome), outcome=outcome)

    return patch.object(Journal, "_put_result", hasty)


def answers_are_not_logged() -> AbstractContextManager[Any]:
    """E2: what came of a call is known to its caller only."""

    def unlogged(self: Journal, file: str, outcome: Any) -> Any:
        return CallResult(self._epoch, self._wall, outcome)

    return patch.object(Journal, "_put_result", unlogged)


def existing_answers_count_as_durable() -> AbstractContextManager[Any]:
    """E2, B1: an answer that lies there is used, though its name may not be on disk yet."""
    begin = Journal.__init__

    def trusting(self: Journal, store: Any, *args: Any, **options: Any) -> None:
        class Trusting(ForwardingStore):
            def sync(self, directory: str) -> None:
                pass

        begin(self, Trusting(store), *args, **options)

    return patch.object(Journal, "__init__", trusting)


def calls_are_named_by_the_plan() -> AbstractContextManager[Any]:
    """E2: the successor of a voided plan calls under a new name."""
    ask = TracedContext.ask

    def by_plan(self: TracedContext, question: Any) -> bytes:
        question.repeats = question.options.log == BEFORE_USE
        return ask(self, question)

    return patch.object(TracedContext, "ask", by_plan)


def failures_are_replayed_for_ever() -> AbstractContextManager[Any]:
    """E2: what failed in a plan that was voided is told to the plans after it."""
    return patch.object(Journal, "_is_void", lambda self, found, options: False)


def failures_are_never_kept() -> AbstractContextManager[Any]:
    """E2: what failed is asked again by every try of its own plan."""
    once = Journal.once

    def again(self: Journal, *args: Any) -> Any:
        mine = set()

        def is_void(found: Any, options: Any) -> bool:
            return found.outcome.again and not mine

        def perform(deadline: float) -> Any:
            mine.add(1)
            return args[3](deadline)

        with patch.object(self, "_is_void", is_void):
            return once(self, *args[:3], perform)

    return patch.object(Journal, "once", again)


def doubts_are_failures() -> AbstractContextManager[Any]:
    """E2: a try that may have got through counts as one that did not."""
    return patch.object(CallOptions, "doubts", False)


def uncertain_calls_are_repeated() -> AbstractContextManager[Any]:
    """E2: a call that may have got through is made again, whatever its policy says."""
    return patch.object(journal, "AGAIN", RAISE)


def zombies_make_their_own_directory() -> AbstractContextManager[Any]:
    """E2, C8: a task whose determinants were swept makes their place anew, and calls."""
    put = Journal._put

    def making(self: Journal, full: str, data: bytes, **options: Any) -> bytes:
        self._store.make_directory(self._directory)
        return put(self, full, data, **options)

    stack = ExitStack()
    stack.enter_context(patch.object(Journal, "_put", making))
    stack.enter_context(patch.object(Journal, "_refuse_closed", lambda self: None))
    return stack


def answers_of_dropped_attempts_stay() -> AbstractContextManager[Any]:
    """E3: answers that travel with the commit are taken from whichever attempt came last."""
    try_call, seen = outside.try_call, []

    def mixed(name: str, request: str, *args: Any, **options: Any) -> Any:
        found = try_call(name, request, *args, **options)
        if "deadline" not in options:
            seen.append(found)
            return msgspec.structs.replace(seen[0], name=name, request=request)
        return found

    return patch.object(outside, "try_call", mixed)


# F. Output


def delivery_comes_before_commit() -> AbstractContextManager[Any]:
    """The order of an epoch's acts: rows are shown before the epoch has happened."""
    commit = Driver._commit

    def early(self: Driver, plan: Any, made: Any, riders: Any) -> None:
        self._deliverer.deliver(made, riders)
        commit(self, plan, made, riders)

    return patch.object(Driver, "_commit", early)


def high_water_comes_first() -> AbstractContextManager[Any]:
    """F1: the high-water rises before the rename."""
    rename = FileSink._rename

    def late(self: FileSink, staging: str, name: str, epoch: int) -> None:
        HighWater(self._marks, "early").advance(epoch)
        file_sinks.reach("after-high-water")
        rename(self, staging, name, epoch)

    return patch.object(FileSink, "_rename", late)


def claims_overwrite() -> AbstractContextManager[Any]:
    """F1: a claim is renamed into place, so the last one to come has it."""

    def claim(self: FileSink, epoch: int, mine: Claim) -> Claim:
        self._claims.write(epoch_name(epoch), msgspec.json.encode(mine))
        return mine

    return patch.object(FileSink, "_claim", claim)


def staging_is_swept_at_once() -> AbstractContextManager[Any]:
    """F1: a driver that starts sweeps what another has claimed and not yet renamed."""
    sweep = FileSink._sweep

    def everything(self: FileSink, water: int, *, weak_before: int = 0) -> None:
        sweep(self, water + 1, weak_before=weak_before)

    return patch.object(FileSink, "_sweep", everything)


def high_water_is_overwritten() -> AbstractContextManager[Any]:
    """F2: whoever writes the high-water last sets it, a driver that woke late too."""
    advance = HighWater.advance

    def overwritten(self: HighWater, epoch: int, *given: Any, **options: Any) -> None:
        advance(self, epoch, *given, **options)
        for name in self._store.list(""):
            if name.isdigit() and int(name) > epoch:
                self._store.delete(name)

    return patch.object(HighWater, "advance", overwritten)


def delivery_is_not_repeated() -> AbstractContextManager[Any]:
    """F1: the next driver does not deliver what the last one committed."""
    from headrace.engine.driver.delivery import Deliverer

    return patch.object(Deliverer, "catch_up", lambda self, *given: None)


@contextmanager
def nothing() -> Iterator[None]:
    """No mutation: the control."""
    yield


MUTATIONS: dict[str, Mutation] = {
    made.__name__: made
    for made in (
        commits_overwrite,
        fencing_is_ignored,
        generations_are_equal,
        unsettled_puts_are_left,
        retries_have_fresh_nonces,
        voids_close_epochs,
        wall_time_goes_back,
        files_are_not_synced,
        names_are_not_synced,
        digests_are_ignored,
        missing_blobs_are_overlooked,
        dropped_attempts_stay_cached,
        caches_do_not_catch_up,
        tombstones_always_go,
        merges_take_any_place,
        entries_are_not_cut,
        collection_forgets_the_window,
        collection_takes_the_newest,
        timers_stay_after_firing,
        timers_hold_nothing,
        late_is_judged_too_late,
        calls_have_no_intents,
        intents_are_everybodys,
        answers_are_used_before_they_are_logged,
        answers_are_not_logged,
        existing_answers_count_as_durable,
        calls_are_named_by_the_plan,
        failures_are_replayed_for_ever,
        failures_are_never_kept,
        doubts_are_failures,
        uncertain_calls_are_repeated,
        zombies_make_their_own_directory,
        answers_of_dropped_attempts_stay,
        delivery_comes_before_commit,
        high_water_comes_first,
        claims_overwrite,
        staging_is_swept_at_once,
        high_water_is_overwritten,
        delivery_is_not_repeated,
        *(getattr(mutations_of_control, name) for name in mutations_of_control.__all__),
        *(getattr(mutations_of_copies, name) for name in mutations_of_copies.__all__),
        *(getattr(mutations_of_deploys, name) for name in mutations_of_deploys.__all__),
        *(getattr(mutations_of_intervals, name) for name in mutations_of_intervals.__all__),
        *(getattr(mutations_of_levels, name) for name in mutations_of_levels.__all__),
        *(getattr(mutations_of_load, name) for name in mutations_of_load.__all__),
        *(getattr(mutations_of_limits, name) for name in mutations_of_limits.__all__),
        *(getattr(mutations_of_objects, name) for name in mutations_of_objects.__all__),
        *(getattr(mutations_of_rings, name) for name in mutations_of_rings.__all__),
        *(getattr(mutations_of_runs, name) for name in mutations_of_runs.__all__),
        *(getattr(mutations_of_records, name) for name in mutations_of_records.__all__),
        *(getattr(mutations_of_riders, name) for name in mutations_of_riders.__all__),
        *(getattr(mutations_of_state_stores, name) for name in mutations_of_state_stores.__all__),
    )
}

ONLY: dict[str, str] = {
    **mutations_of_intervals.ONLY,
    "ties_fall_as_they_come": "ties",
    "weak_rows_that_were_refused_are_let_go": "at-least-once",
    "weak_rows_that_were_refused_run_their_job_again": "at-least-once",
    "skipped_records_are_not_counted": "at-most-once",
    "undelivered_rows_are_not_told": "at-most-once",
    "refused_rows_are_handed_over_again": "at-most-once",
    "acknowledged_epochs_are_passed_over": "at-most-once",
    "manifests_name_no_commit": "copies",
    **dict.fromkeys(mutations_of_copies.__all__, "copies"),
    **dict.fromkeys(mutations_of_limits.__all__, "limited"),
    **dict.fromkeys(mutations_of_rings.__all__, "moving"),
    **dict.fromkeys(mutations_of_deploys.__all__, "deploys"),
    **dict.fromkeys(mutations_of_state_stores.__all__, "stored"),
}
"""Mutation -> the workload that can find it; others would only take time."""
