"""Runs the keys of a slot one after another or, with `concurrency=n`, in n threads.

Invariant: results do not depend on `concurrency`. In threads, each key has its own emitter, and
these emitters are merged in the order of keys. If several keys fail, the error of the first key in
that order is raised. Calls of a service with `batch=` are gathered from the keys that run at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from typing import NamedTuple

from headrace.causal.batches import Gatherer
from headrace.state.backend import Stored
from headrace.state.view import CellId
from headrace.worker.exchange.emitter import Emitter
from headrace.worker.key_state import KeyState
from headrace.worker.records.hooks import KeyedHooks
from headrace.worker.records.key_records import KeyRecords
from headrace.worker.records.outputs import Outputs, outputs_of
from headrace.worker.records.traced_context import Identities
from headrace.worker.slot_run import SlotRun
from headrace.worker.watching.watchdog import watching

_AHEAD = 4
"""Keys that wait for a thread, per thread. A key's records are created when it is submitted."""


class KeyWork(NamedTuple):
    """The work of one key in an epoch."""

    key: bytes
    state: KeyState
    stored: Stored
    due: list[tuple[int, CellId]]
    due_wall: list[tuple[int, CellId]]


InputsOf = Callable[[bytes], tuple[KeyRecords, Identities]]
"""A key's records and their identities."""

Done = tuple[bytes, KeyState, int]
"""A key, its state to seal, and the time of its last hook."""


def run_keys(
    run: SlotRun, outputs: Outputs, work: Iterator[KeyWork], inputs_of: InputsOf
) -> Iterator[Done]:
    """Runs every key's hooks; returns their results in the order of keys."""
    if run.node.concurrency > 1:
        yield from _in_threads(run, outputs, work, inputs_of)
        return
    hooks = KeyedHooks(run, run.emitter, outputs)
    with watching(hooks.watch):
        for item in work:
            yield _run_key(run, run.emitter, hooks, item, *inputs_of(item.key))


def _run_key(
    run: SlotRun,
    emitter: Emitter,
    hooks: KeyedHooks,
    item: KeyWork,
    records: KeyRecords,
    identities: Identities,
) -> Done:
    key, state, stored, due, due_wall = item
    state = hooks.run_key(key, state, stored, records, due, due_wall, identities)
    if emitter.calls.broken is not None:
        raise emitter.calls.broken
    return key, state, hooks.last_time.get(key, run.before_of(key))


def _in_threads(
    run: SlotRun, outputs: Outputs, work: Iterator[KeyWork], inputs_of: InputsOf
) -> Iterator[Done]:
    threads = run.node.concurrency
    waiting: deque[Future[tuple[Done, Emitter, Outputs]]] = deque()
    gatherer = Gatherer(run.emitter.runtime.store.system, threads)
    with (
        closing(gatherer),
        ThreadPoolExecutor(threads, thread_name_prefix="headrace-key") as pool,
    ):
        try:
            for item in work:
                gatherer.key_begins()
                given = inputs_of(item.key)
                waiting.append(pool.submit(_run_alone, run, gatherer, item, *given))
                if len(waiting) >= threads * (1 + _AHEAD):
                    with gatherer.no_more_keys():
                        wait([waiting[0]])
                    yield _take_over(run, outputs, waiting.popleft())
            while waiting:
                with gatherer.no_more_keys():
                    wait([waiting[0]])
                yield _take_over(run, outputs, waiting.popleft())
        finally:
            for future in waiting:
                future.cancel()


def _run_alone(
    run: SlotRun, gatherer: Gatherer, item: KeyWork, records: KeyRecords, identities: Identities
) -> tuple[Done, Emitter, Outputs]:
    try:
        emitter = run.emitter.apart()
        emitter.calls.gathering = gatherer
        outputs = outputs_of(run)
        hooks = KeyedHooks(run, emitter, outputs)
        with watching(hooks.watch):
            done = _run_key(run, emitter, hooks, item, records, identities)
        return done, emitter, outputs
    finally:
        gatherer.key_ends()


def _take_over(
    run: SlotRun, outputs: Outputs, future: Future[tuple[Done, Emitter, Outputs]]
) -> Done:
    done, emitter, made = future.result()
    run.emitter.take_over(emitter)
    outputs.add_all(made)
    return done
