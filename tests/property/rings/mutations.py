"""Rules about rings, each taken out by itself: a schedule must notice every one.

A mutation replaces a piece of the source of one function, so that it fails when that piece is no
longer there.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from headrace.plan.rings import changes, classes, manifest
from headrace.plan.rings.ledger import RingLedger
from headrace.state import cache, compaction
from headrace.state.times import pieces
from headrace.worker.exchange import outbox


class Mutation(NamedTuple):
    """`where.name`, with `old` replaced by `new`."""

    why: str
    where: Any
    name: str
    old: str
    new: str


MUTATIONS = {
    "no since": Mutation(
        "J2: a slot's own segment counts in what came to the slot later.",
        classes, "counts", "entry.last_epoch >= of.since", "True",
    ),
    "join any": Mutation(
        "J4: classes are joined though entries make a difference.",
        classes, "joined", "any(last.since <= epoch < one.since for epoch in epochs)", "False",
    ),
    "no clip": Mutation(
        "J5: a merge reads segments where they do not count.",
        compaction, "parts_of", "counting.rows(entry, segment)", "segment.inside(records)",
    ),
    "result own only": Mutation(
        "J5: a result does not count in the classes that had inherited what it has.",
        manifest, "with_adoption", "for c in adoption.classes if c in live", "for c in ()",
    ),
    "adopt blindly": Mutation(
        "J5: a merge is adopted though its segments have changed.",
        manifest, "adopts", "return all(", "return True or all(",
    ),
    "cache keeps all": Mutation(
        "J6: cells of keys that have left stay in the cache.",
        cache, "_drop_outside", "for index in cached.indexes.values():", "for index in ():",
    ),
    "classes move as one": Mutation(
        "J3: two classes of a slot become one when they move.",
        changes, "change_ring", "one = class_of[slot, each]", "one = slots[slot].classes[0]",
    ),
    "any piece": Mutation(
        "J7: a piece of an older ownership is used, or one that has missed deletions.",
        pieces.PrefetchedPiece, "serves", "return (",
        "return came.slot == self.slot and covers(self.records, records) or (",
    ),
    "always bottom": Mutation(
        "C2: deletions are dropped above older segments.",
        compaction, "is_bottom", "return not any(", "return True or not any(",
    ),
    "lost deletions": Mutation(
        "C4: a cache catches up from segments whose deletions were dropped.",
        cache, "_lost_deletions", "return any(", "return False and any(",
    ),
    "pending blindly": Mutation(
        "C4: the changes of a dropped attempt count.",
        cache.WorkerCache, "_adopt_pending", "if pending is None or pending.chain not in known:",
        "if pending is None or (pending.chain not in known and [\n"
        "            cached.indexes[n].apply(c) for n, c in pending.changes.items()]):",
    ),
    "outbox to old slots": Mutation(
        "J9: a file is not given to the slots that its keys have moved to.",
        outbox, "files_for", "or not came.isdisjoint(file.slots)", "",
    ),
    "outbox unfiltered": Mutation(
        "J9: a slot takes rows of a file that it does not own.",
        outbox, "read_outbox", "(ring.place(parcel.hashes()) == slot)[parcel.codes]",
        "(ring.place(parcel.hashes()) >= 0)[parcel.codes]",
    ),
    "moves without shards": Mutation(
        "J12: a commit that changes a ring does not carry the shards that it touches.",
        RingLedger, "carried", "set(change.slots)", "set()",
    ),
}  # fmt: skip
"""That moves are net (J1) is left out by `Schedule(net=False)`."""


@contextmanager
def applied(mutation: Mutation) -> Iterator[None]:
    """Runs a block with a function replaced wherever it is used."""
    raw = inspect.getattr_static(mutation.where, mutation.name)
    function: Callable[..., Any] = getattr(mutation.where, mutation.name)
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(mutation.old) != 1:
        raise AssertionError(
            f"{mutation.name} has no {mutation.old!r}: the mutation is out of date"
        )
    module = sys.modules[function.__module__]
    source = source.replace(mutation.old, mutation.new).removeprefix("@staticmethod\n")
    made: dict[str, Any] = {}
    code = compile(f"from __future__ import annotations\n{source}", module.__file__ or "", "exec")
    exec(code, module.__dict__, made)
    new = made[mutation.name]
    if isinstance(raw, staticmethod):
        new = staticmethod(new)
    places = [(mutation.where, mutation.name)]
    for each in list(sys.modules.values()):
        if getattr(each, "__name__", "").startswith("headrace"):
            places += [(each, n) for n, found in vars(each).items() if found is raw]
    before = [(where, name, inspect.getattr_static(where, name)) for where, name in places]
    try:
        for where, name in places:
            setattr(where, name, new)
        yield
    finally:
        for where, name, old in before:
            setattr(where, name, old)
