"""A store is asked, not believed, before it holds a checkpoint.

The log rests on one promise: of all that put one name, exactly one succeeds. Some servers ignore
the condition, others honour it only when nobody else asks at the same time. So many creators put
one random name at once, and then the name is read, listed and put again. The name is used once and
deleted.

A disk is not asked at the start of a run: its links are atomic. `headrace store check` asks any
store, and measures it.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from headrace.errors import StoreError
from headrace.store.counts import UPKEEP, counted_as
from headrace.store.store import Store

CREATORS = 16
ROUNDS = 2
_asked: set[str] = set()
"""Locations that this process has asked."""


class StoreCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a store can hold a checkpoint, and how long a request takes there."""

    location: str
    can_hold_a_checkpoint: bool
    reason: str | None = None
    """Why not."""
    put_ms_p50: float | None = None
    get_ms_p50: float | None = None
    list_ms_p50: float | None = None
    requests: int = 0
    """How many requests of each kind were measured."""


def require_exact_puts(store: Store) -> None:
    """StoreError if the store cannot hold a checkpoint; asks once per process and location."""
    if store.must_be_asked and store.location not in _asked:
        with counted_as(UPKEEP):
            ask(store)
        _asked.add(store.location)


def ask(store: Store, rounds: int = ROUNDS) -> None:
    """Lets many creators put one name at once; StoreError unless exactly one of them succeeds."""
    name = _new_name(store)
    try:
        store.read(name)  # The first request: whatever is wrong with the place is found here.
    except FileNotFoundError:
        pass
    store.make_directory("")  # HDFS refuses a file without it.
    for _ in range(rounds):
        name = _new_name(store)
        try:
            _race(store, name)
        finally:
            store.delete(name)


def check(store: Store, requests: int = 20) -> StoreCheck:
    """Asks and measures a store; a store that refuses is a result, not an error."""
    try:
        was_present = store.is_present()
        try:
            ask(store)
            return _measured(store, requests)
        finally:
            if not was_present:
                store.remove_directory("")
    except (OSError, StoreError) as error:
        return StoreCheck(location=store.location, can_hold_a_checkpoint=False, reason=str(error))


def _race(store: Store, name: str) -> None:
    together = threading.Barrier(CREATORS)
    bodies = [f"creator {number}".encode() for number in range(CREATORS)]

    def create(body: bytes) -> bool:
        together.wait()
        return store.put_if_absent(name, body)

    with ThreadPoolExecutor(CREATORS) as pool:
        won = list(pool.map(create, bodies))
    winners = won.count(True)
    if winners != 1:
        raise StoreError(
            f"{store.where()} cannot hold a checkpoint: {winners} of {CREATORS} writers that "
            "created one name at the same time succeeded, where exactly one may. Its server does "
            "not honour conditional puts (If-None-Match): use another server, or a newer one"
        )
    if store.put_if_absent(name, b"late"):
        raise _unusable(store, "a second put replaced a file that was there")
    if store.read(name) != bodies[won.index(True)]:
        raise _unusable(store, "a read did not return what was put before")
    if name not in store.list(""):
        raise _unusable(store, "a list did not show a name that was put before")


def _measured(store: Store, requests: int) -> StoreCheck:
    names = [_new_name(store) for _ in range(requests)]
    body = b"x" * 1024
    try:
        put = [_ms(store, partial(store.put_if_absent, name, body)) for name in names]
        get = [_ms(store, partial(store.read, name)) for name in names]
        listed = [_ms(store, partial(store.list, "")) for _ in names]
    finally:
        for name in names:
            store.delete(name)
    return StoreCheck(
        location=store.location,
        can_hold_a_checkpoint=True,
        put_ms_p50=round(statistics.median(put), 3),
        get_ms_p50=round(statistics.median(get), 3),
        list_ms_p50=round(statistics.median(listed), 3),
        requests=requests,
    )


def _ms(store: Store, act: Callable[[], object]) -> float:
    began = store.system.uptime_s()
    act()
    return (store.system.uptime_s() - began) * 1000


def _new_name(store: Store) -> str:
    return f"asked-{store.system.token_hex(12)}"


def _unusable(store: Store, why: str) -> StoreError:
    return StoreError(f"{store.where()} cannot hold a checkpoint: {why}; use another server")
