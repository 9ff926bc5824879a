"""Runs the keyed hooks of one computation in one slot, over each key's records and timers.

Order within a key (protocol D7, D8): records keep their order (arrival order, or time order for
ordered computations). A due timer fires as soon as no remaining record is older than it.
Wall-time timers fire last.

Invariant: a hook that raises leaves no trace. The first pass makes no copies for this. If a hook
fails, the key is loaded again and all its hooks run again over new values, with a savepoint
before each hook.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count, islice, repeat
from typing import Any

from headrace.causal.calls import BROKEN
from headrace.causal.lineage import keyed_origin, origin_part, timer_identity
from headrace.errors import HeadraceError, IncompatibleState, UserCodeError
from headrace.model.record import Record, Timer
from headrace.model.values.keys import decode_key
from headrace.model.values.time import BEGINNING, END, oldest_on_time
from headrace.pipeline.graph.graph import To
from headrace.state.backend import Stored
from headrace.state.view import CellId
from headrace.worker import dead_letters, key_state
from headrace.worker.dead_letters import FailedHook
from headrace.worker.exchange.emitter import Emitter
from headrace.worker.key_state import KeyState
from headrace.worker.records.context import HookContext
from headrace.worker.records.key_records import KeyRecords
from headrace.worker.records.outputs import Outputs
from headrace.worker.records.traced_context import Identities, TracedContext, is_traced
from headrace.worker.slot_run import SlotRun
from headrace.worker.watching.tracebacks import describe
from headrace.worker.watching.watchdog import HookWatch, Interrupt, error_of

TTL_TAG = b"\xff ttl"
"""The entry of the hidden timer that forgets a key; no user's tag encodes to it."""


COUNTED_RECORDS = 256
"""After so many records of a key, the hooks that have run are counted."""
_STOPS = (IncompatibleState, *BROKEN)
"""Errors that are not the fault of a record."""


class KeyedHooks:
    """Runs hooks key by key."""

    def __init__(self, run: SlotRun, emitter: Emitter, outputs: Outputs) -> None:
        """`emitter` and `outputs` collect what the hooks make."""
        live, timers = run.live, run.timers
        self.emitter, self.live, self.timers = emitter, live, timers
        self.before, self.now = run.before, run.now
        self._since = oldest_on_time(run.before)
        """Lower bound of a hook's time. After the end of the input, the record's time counts."""
        self._slot_run = run if run.held_before or run.held_now else None
        """Given if some keys have a watermark of their own, as records of them are carried."""
        self.outputs = outputs
        self.wall = emitter.order.plan.wall
        self._traced = (
            TracedContext(emitter, live.node, outputs, timers, b"")
            if is_traced(emitter, live.node)
            else None
        )
        self.context = self._traced or HookContext(emitter, live.node, outputs, timers, b"")
        self.context.final = run.now == END
        self.context.on_timer_set = self._timer_set
        self.context.on_forget = self._forget
        self._ordered = live.node.ordered
        self._ttl_us = live.shape.options.ttl_us
        self._wall_ttl = live.shape.options.clock == "wall"
        self._field_ttl = any(f.ttl_us is not None for f in live.shape.fields)
        # Computations without timers and TTLs take the short loop.
        self._plain = not (live.shape.takes_timers or self._ttl_us or self._field_ttl)
        topology = emitter.runtime.topology
        self._with_origin = any(s in topology.needs_origin for s in live.node.outputs.values())
        self._follows = self._with_origin and live.node.template.follows
        self._named = topology.needs_identity
        self._due: list[tuple[int, bytes]] = []
        self._timers_max = emitter.runtime.store.system.limits.timers_per_key_max
        self._fired = 0
        self._careful = False
        """Whether this is the second pass: a savepoint before each hook, and a check after it."""
        self._identities: Identities = list
        """Identities of the key's records, if calls are named by them."""
        self._state: KeyState | None = None
        self.watch = HookWatch(live.node).over(self.context)
        self.last_time: dict[bytes, int] = {}

    def run_key(
        self,
        key: bytes,
        state: KeyState,
        stored: Stored,
        records: KeyRecords,
        due: list[tuple[int, CellId]],
        due_wall: list[tuple[int, CellId]],
        identities: Identities = list,
    ) -> KeyState:
        """Runs all hooks of a key in this epoch; returns the state to seal."""
        shown = decode_key(key)
        self._identities = identities
        if not isinstance(self.live.node.errors, To):
            try:
                self._run(key, shown, state, records, due, due_wall)
            except FailedHook as failure:
                raise self._stop(failure) from failure.error
            return state
        rewind = self._rewinder(key)
        try:
            self._run(key, shown, state, records, due, due_wall)
            key_state.check(self.live, state)
            return state
        except (FailedHook, TypeError, AttributeError):
            # The cause may lie in what an earlier hook left. Run all hooks again, from the stored
            # state and with unchanged values, and check the key after each hook.
            rewind()
        state = key_state.load(self.live, key, stored)
        self._careful = True
        self._run(key, shown, state, records, due, due_wall)
        self._careful = False
        key_state.trust(self.live, state)
        return state

    def _set_aside(self, failure: FailedHook) -> None:
        """Undoes what a hook did, and sends its record to the stream that the policy names."""
        node, context = self.live.node, self.context
        error, record = failure.error, failure.record
        if isinstance(error, _STOPS) or not dead_letters.takes_letter(node.errors, error):
            raise self._stop(failure) from error
        stream, value, at = (
            (None, None, None)
            if record is None
            else (record.stream, record.value, record.timestamp)
        )
        letter = dead_letters.letter_of(self.emitter, node, context.key, stream, value, at, error)
        origin = keyed_origin(node.name, context.key_bytes)
        cause = self._traced.cause if self._traced is not None else b""
        dead_letters.send(self.emitter, node.errors, letter, context.time, origin, cause)

    def _stop(self, failure: FailedHook) -> HeadraceError:
        """The error with which a failed hook stops the pipeline."""
        error, shown = failure.error, self.context.key
        if isinstance(error, _STOPS):
            where = f"computation {self.live.node.name!r}, key {shown!r:.100}"
            return type(error)(f"{where}: {error}")
        return UserCodeError(describe(self.live.node, shown, failure.describe_cause(), error))

    def _rewinder(self, key: bytes) -> Callable[[], None]:
        """A function that undoes all that a key's hooks collect from now on."""
        outputs, timers, counters = self.outputs, self.timers, self.emitter.counters
        made, behind, changed = outputs.savepoint(), outputs.behind, timers.savepoint(key)
        metrics = dict(counters.metrics)
        hooks, fired, unfired = counters.hooks, counters.timers, counters.unfired
        due = list(self._due)

        def rewind() -> None:
            outputs.rewind(made)
            outputs.behind = behind
            timers.rewind(key, changed)
            counters.metrics = metrics
            counters.hooks, counters.timers, counters.unfired = hooks, fired, unfired
            self._due = due

        return rewind

    # One pass over a key --------------------------------------------------

    def _run(
        self,
        key: bytes,
        shown: Any,
        state: KeyState,
        records: KeyRecords,
        due: list[tuple[int, CellId]],
        due_wall: list[tuple[int, CellId]],
    ) -> None:
        context = self.context
        self.watch.begin()
        context.enter(shown, key)
        if self._slot_run is not None:
            self._see_watermarks(self._slot_run, key)
        context.watermark = self.before
        if self._with_origin:
            context.set_origin(keyed_origin(self.live.node.name, key))
        self._state = state
        quick = self._plain and not self._ordered and not self._careful
        if quick and not due and not due_wall:
            self._run_records(key, state, records)
            self.watch.turn = None
            return
        self._fired = 0
        self._due = [(at, cell[2]) for at, cell in due]
        heapq.heapify(self._due)
        remaining = _oldest_remaining(records.times)
        identities = self._identities() if self._traced is not None or self._follows else ()
        hook = 0
        # A hook may change its record, so a dead letter shows a second copy of it.
        untouched = records if self._careful else repeat(None)
        for i, (record, original) in enumerate(zip(records, untouched, strict=False)):
            hook = self._fire_due(remaining[i], hook)
            context.hook = hook
            hook += 1
            if self._traced is not None:
                self._traced.caused_by(record.stream, identities[i])
            if self._follows:
                named = record.stream in self._named
                context.set_origin(origin_part(identities[i]) if named else identities[i])
            self._record(record, record if original is None else original, i)
        hook = self._fire_due(self.now, hook)
        for at, cell in due_wall:
            if self.timers.get("wall", cell) == (at, self._hold_of("wall", cell)):
                self._fire("wall", at, cell[2], hook)
                hook += 1
        self.watch.turn = None

    def _see_watermarks(self, run: SlotRun, key: bytes) -> None:
        """A key with carried records sees a watermark of its own (P3)."""
        self.before, self.now = run.before_of(key), run.now_of(key)
        self._since = oldest_on_time(self.before)
        self.context.final = self.now == END

    def _run_records(self, key: bytes, state: KeyState, records: KeyRecords) -> None:
        """The short loop, for keys that have only records."""
        context = self.context
        context.in_timer = False
        process = state.object.process_record
        if self._traced is not None:
            self._traced.all_caused_by(records, self._identities)
        record: Record[Any] | None = None
        times, left, counters = records.times, len(records), self.emitter.counters
        steps = zip(count(), times, iter(records), strict=False)
        try:
            while left > 0:
                for context.hook, context.time, record in islice(steps, COUNTED_RECORDS):
                    process(record, context)
                # Counted in between, so that a mark of a hot key says how far it has come (P1).
                counters.hooks += min(left, COUNTED_RECORDS)
                left -= COUNTED_RECORDS
        except (Exception, Interrupt) as error:
            failed = error_of(error, self.watch)
            raise FailedHook(("record", context.hook), record, failed) from error
        if records:
            self.last_time[key] = max(times[-1], self._since)

    def _record(self, record: Record[Any], original: Record[Any], index: int) -> None:
        context, state = self.context, self._state
        if state is None:
            return
        context.time, context.in_timer = record.timestamp, False
        undo = self._undoer(state) if self._careful else None
        clock = self._begin(record.timestamp)
        if self._ordered:
            context.watermark = record.timestamp
        try:
            state.object.process_record(record, context)
            self._end(clock, state)
        except (Exception, Interrupt) as error:
            failure = FailedHook(("record", index), original, error_of(error, self.watch))
            if undo is None:
                raise failure from error
            undo()
            self._set_aside(failure)
            return
        self.emitter.counters.hooks += 1

    def _undoer(self, state: KeyState) -> Callable[[], None]:
        """A function that undoes all that the next hook does."""
        rewind = self._rewinder(self.context.key_bytes)
        savepoint = key_state.KeySavepoint(self.live, state)

        def undo() -> None:
            rewind()
            savepoint.restore()

        return undo

    def _fire_due(self, limit: int, hook: int) -> int:
        limit = min(limit, self.now)
        while self._due and self._due[0][0] <= limit:
            at, entry = heapq.heappop(self._due)
            cell = (self.context.key_bytes, "event", entry)
            timed = self.timers.get("event", cell)
            if timed is None or timed[0] != at:
                continue  # cancelled, or replaced by another time
            self._fire("event", at, entry, hook)
            hook += 1
            if self._fired > self._timers_max:
                raise UserCodeError(
                    f"computation {self.live.node.name!r}, key {self.context.key!r}: more than "
                    f"{self._timers_max:,} timers in one epoch: does process_timer set a timer "
                    "that is due at once, for ever?"
                )
        return hook

    def _fire(self, clock: str, at: int, entry: bytes, hook: int) -> None:
        context, state = self.context, self._state
        if state is None:
            return
        self.timers.set(clock, (context.key_bytes, clock, entry), None)
        if entry == TTL_TAG:
            if not context.final:
                context.forget()
            return
        context.hook, context.in_timer = hook, True
        if self._traced is not None:
            self._traced.caused_by("", timer_identity(clock, entry, at))
        context.time = at if clock == "event" else self.now if self.now != END else self.wall
        context.watermark = at if self._ordered and clock == "event" else self.now
        timer = Timer(decode_key(entry), at, clock)
        undo = self._undoer(state) if self._careful else None
        hook_clock = self._begin(at if clock == "event" else self._since)
        try:
            state.object.process_timer(timer, context)
            self._end(hook_clock, state)
        except (Exception, Interrupt) as error:
            failure = FailedHook(("timer", clock, at, entry), None, error_of(error, self.watch))
            if undo is None:
                raise failure from error
            undo()
            self._set_aside(failure)
            return
        finally:
            context.in_timer = False
            context.watermark = self.before
        self.emitter.counters.timers += 1

    # TTL ------------------------------------------------------------------

    def _begin(self, time: int) -> int:
        """Before a hook: sets its time (D11), and hides the values that have expired by then."""
        key = self.context.key_bytes
        if time == END:
            time = BEGINNING  # A timer at the end of time has no time of its own.
        clock = self.wall if self._wall_ttl else max(time, self._since)
        self.last_time[key] = clock
        if self._ttl_us is not None:
            name = "wall" if self._wall_ttl else "event"
            timed = self.timers.get(name, (key, name, TTL_TAG))
            if timed is not None and timed[0] <= clock:
                self.context.forget()
        if self._field_ttl and self._state is not None:
            key_state.expire(self.live, self._state, clock)
        return clock

    def _end(self, clock: int, state: KeyState) -> None:
        """After a hook: renews TTLs of written values; `_careful`: checks what it wrote."""
        if self._careful:
            key_state.check(self.live, state)
        if self._ttl_us is None and not self._field_ttl:
            return
        wrote = key_state.note_writes(self.live, state, clock)
        if wrote and self._ttl_us is not None:
            name = "wall" if self._wall_ttl else "event"
            at = min(clock + self._ttl_us, END)
            cell = (self.context.key_bytes, name, TTL_TAG)
            self.timers.set(name, cell, (at, END))
            if name == "event":
                self._timer_set(cell, at)

    # Called back by ctx ---------------------------------------------------

    def _timer_set(self, cell: CellId, at: int) -> None:
        if at <= self.now:
            # Only timers set by timers can go on for ever. Those that were due at the start, or
            # that records set, are finite, even if there are many.
            self._fired += self.context.in_timer
            heapq.heappush(self._due, (at, cell[2]))

    def _forget(self) -> None:
        if self._state is not None:
            key_state.reset(self.live, self._state)

    def _hold_of(self, name: str, cell: CellId) -> int:
        timed = self.timers.get(name, cell)
        return timed[1] if timed is not None else END


def _oldest_remaining(times: list[int]) -> list[int]:
    """For each record, the oldest timestamp among it and the records after it."""
    oldest = END
    found = []
    for time in reversed(times):
        oldest = min(oldest, time)
        found.append(oldest)
    found.reverse()
    return found
