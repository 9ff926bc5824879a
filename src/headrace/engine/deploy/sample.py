"""Reads stored cells with new code, before it takes over: decodes them and migrates them (L2).

Nothing is written. A computation whose state the new code cannot read is found here, and not in
its first epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np

from headrace.engine.replay.checkpoint import Checkpoint
from headrace.errors import HeadraceError, IncompatibleState, UserCodeError
from headrace.model.map import Map
from headrace.model.values.keys import decode_key
from headrace.pipeline.graph.topology import Topology
from headrace.state.backend import StateView, Stored
from headrace.worker.key_state import check, load
from headrace.worker.runtime import Live
from headrace.worker.watching.tracebacks import shortened

KEYS = 1000
"""How many keys of each computation are read, unless all are asked for."""
ENTRIES = 100
"""How many entries of each map of a key are decoded."""
_AT_ONCE = 1000


def check_cells(
    topology: Topology, checkpoint: Checkpoint, former: Mapping[str, str], *, every: bool = False
) -> dict[str, int]:
    """Computation -> how many keys were read; raises with the first one that cannot be.

    `former` maps a computation's name to the one under which its state lies.
    """
    found: dict[str, int] = {}
    for name, node in topology.keyed.items():
        stored_as = former.get(name, name)
        if stored_as not in checkpoint.computations:
            continue
        live = Live(node)
        clock = checkpoint.clock(stored_as)
        count = 0
        for key, stored in _cells(checkpoint.view(stored_as), None if every else KEYS):
            stored.clock = clock
            _read(live, key, stored)
            count += 1
        found[name] = count
    return found


def _cells(view: StateView, limit: int | None) -> Iterator[tuple[bytes, Stored]]:
    scanned = islice(view.scan(), limit)
    while part := sorted(set(islice(scanned, _AT_ONCE))):
        keys = [key for _, key in part]
        hashes = np.array([where for where, _ in part], np.uint64)
        yield from zip(keys, view.fetch(keys, hashes, maps=True), strict=True)


def _read(live: Live, key: bytes, stored: Stored) -> None:
    try:
        state = load(live, key, stored)
        check(live, state)
        for value in vars(state.object).values():
            if isinstance(value, Map):
                list(islice(value.items(), ENTRIES))
    except HeadraceError as error:
        where = f"computation {live.node.name!r}"
        if where in str(error):
            raise
        raise IncompatibleState(f"{where}, key {decode_key(key)!r}: {error}") from error
    except Exception as error:
        raise UserCodeError(
            f"computation {live.node.name!r}, key {decode_key(key)!r}: the new code cannot read "
            f"its state: {type(error).__name__}: {error}\n{shortened(error)}".rstrip()
        ) from error
