"""Opens the state store that `state=` names.

A new kind of store is a module beside this one, a line in `OPENERS`, its scheme in
`plan/state/choice.py`, and a class in tests/contract/state_stores.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from headrace.errors import InvalidPipeline
from headrace.plan.state.choice import NAMES, StateChoice
from headrace.state.backend import OpenState, StateBackend
from headrace.state.backends.directory import require_directory
from headrace.state.backends.files import FilesBackend
from headrace.state.backends.indexed_log.backend import LogBackend
from headrace.store.store import Store

Opener = Callable[[StateChoice, Store, str], StateBackend]
"""Opens the state of a checkpoint, given by its store and its id."""


def _open_redis(choice: StateChoice, store: Store, checkpoint: str) -> StateBackend:
    with _needing("redis"):
        from headrace.state.backends.redis.backend import RedisBackend
    return RedisBackend(choice.given, checkpoint)


def _open_hbase(choice: StateChoice, store: Store, checkpoint: str) -> StateBackend:
    with _needing("hbase"):
        from headrace.state.backends.hbase.backend import HBaseBackend
    return HBaseBackend(choice.given, checkpoint)


OPENERS: dict[str, Opener] = {
    "files": FilesBackend.open,
    "log": LogBackend.open,
    "redis": _open_redis,
    "rediss": _open_redis,
    "hbase": _open_hbase,
}
"""The kind of a store, as its URL begins -> how it is opened."""


def opener_of(choice: StateChoice, store: Store) -> OpenState | None:
    """How to open the state store of a checkpoint; None where segments hold the state."""
    if not choice.copies:
        return None
    if choice.name not in OPENERS:
        raise InvalidPipeline(f"there is no state store {choice.name!r} in this Headrace")
    if choice.name in NAMES:
        require_directory(choice, store)
    return partial(OPENERS[choice.name], choice, store)


@contextmanager
def _needing(extra: str) -> Iterator[None]:
    """Clients of servers are imported by those alone who use them."""
    try:
        yield
    except ImportError as error:
        raise InvalidPipeline(
            f"state={extra}://... needs a client ({error}): pip install 'headrace[{extra}]', where "
            "the driver runs and where the workers run"
        ) from error
