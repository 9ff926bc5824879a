"""Ring objects of a checkpoint, and the rings that this process has decoded, by digest (J1).

A ring object is named by its content and written before the first plan that needs it.
"""

from __future__ import annotations

from collections import OrderedDict

from headrace.errors import CorruptCheckpoint
from headrace.log import paths
from headrace.log.content import digest_of, map_named, verify
from headrace.plan.epoch import WorkOrder
from headrace.plan.rings.refs import (
    RingRef,
    decode_ring,
    encode_ring,
    even_slots,
    step_digest,
)
from headrace.plan.rings.ring import Ring
from headrace.store.store import Store

_RINGS_MAX = 64
_INTERVALS_MAX = 4_000_000
"""Of all rings that are kept; a few are kept however large they are."""

_decoded: OrderedDict[str, Ring] = OrderedDict()
"""Digest -> ring. A digest names the content, so rings of several checkpoints may be here."""


def resolve(store: Store, ref: RingRef) -> Ring:
    """The ring that a reference names."""
    known = _decoded.get(ref.digest)
    if known is not None:
        return known
    digests = [ref.base]
    for step in ref.steps:
        digests.append(step_digest(digests[-1], step))
    at = len(ref.steps)
    while at and _decoded.get(digests[at]) is None:
        at -= 1
    ring = _decoded.get(digests[at])
    if ring is None:
        at, ring = 0, _base(store, ref.base)
        keep(ref.base, ring)
    for step in ref.steps[at:]:
        ring = step.apply(ring)
    keep(ref.digest, ring)
    return ring


def ring_of(store: Store, order: WorkOrder, computation: str) -> Ring:
    """The ring under which a computation runs in an epoch."""
    return resolve(store, order.rings[computation])


def keep(digest: str, ring: Ring) -> None:
    """Keeps a decoded ring for later."""
    _decoded[digest] = ring
    _decoded.move_to_end(digest)
    while len(_decoded) > _RINGS_MAX or (
        len(_decoded) > 4 and sum(map(len, _decoded.values())) > _INTERVALS_MAX
    ):
        _decoded.popitem(last=False)


def ring_object(epoch: int, computation: str, ring: Ring) -> tuple[str, bytes]:
    """The name and the bytes of a ring's object, for a plan of this epoch."""
    data = encode_ring(ring)
    return f"{paths.RINGS}/{paths.content_name(epoch, computation, digest_of(data))}", data


def _base(store: Store, base: str) -> Ring:
    slots = even_slots(base)
    if slots is not None:
        return Ring.even(slots)
    data = map_named(store, base)
    verify(base, data)
    try:
        return decode_ring(bytes(memoryview(data)))
    except ValueError as error:
        raise CorruptCheckpoint(f"{base} is not a ring: {error}") from None
