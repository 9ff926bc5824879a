"""Routes rows to the slots of every keyed consumer of their stream, or to the outbox."""

from __future__ import annotations

import numpy as np

from headrace.errors import InvalidRecord, UserCodeError
from headrace.model.values.keys import decode_key
from headrace.model.values.rows import Rows
from headrace.model.values.shown import shown
from headrace.pipeline.graph.graph import Node, NodeInput
from headrace.plan.parcel import Parcel
from headrace.plan.rings.routing import Unkeyed, keyed
from headrace.plan.rings.routing import route as parts_by_slot
from headrace.worker import dead_letters
from headrace.worker.exchange.emitter import Emitter
from headrace.worker.lateness import keep_combined_on_time
from headrace.worker.tables.combine import combine
from headrace.worker.watching.tracebacks import describe, shortened


def route(emitter: Emitter, stream: str, rows: Rows) -> None:
    """Sends rows of a stream to all its keyed consumers, by the key of each consumer."""
    for node, index, given in emitter.runtime.topology.keyed_consumers(stream):
        _route_to(emitter, stream, rows, node, index, given)


def _route_to(
    emitter: Emitter, stream: str, rows: Rows, node: Node, index: int, given: NodeInput
) -> None:
    parcel, unkeyed = keyed(rows, given.key)
    if unkeyed:
        _reject(emitter, stream, rows, node, unkeyed)
    if node.percentile is not None and len(parcel.rows):
        emitter.add_times(node, parcel.rows.timestamps)
    if node.combines and len(parcel.rows):
        parcel = _combine(emitter, node, stream, keep_combined_on_time(emitter, node, parcel))
    if stream in emitter.runtime.topology.graph.feedback:
        emitter.post(stream, node, index, parcel)
        return
    for slot, part in parts_by_slot(parcel, emitter.ring_of(node)):
        for blob in part.blobs():
            emitter.send(node, index, slot, blob)


def _combine(emitter: Emitter, node: Node, stream: str, parcel: Parcel) -> Parcel:
    """Combines to one row per key and window. The policy decides on records that do not fit."""

    def refuse(row: int, error: Exception) -> None:
        one = parcel.rows.take(np.array([row]))
        key, timestamp = decode_key(parcel.keys[parcel.codes[row]]), int(one.timestamps[0])
        (value,) = one.values()
        if not dead_letters.takes_letter(node.errors, error):
            what = f"record {shown(value, 200)} of {stream!r}"
            raise UserCodeError(describe(node, key, what, error)) from error
        _, identities = emitter.origins(stream, one)
        letter = dead_letters.letter_of(emitter, node, key, stream, value, timestamp, error)
        identity = identities[0] if identities else b""
        origin = emitter.label.encode()
        dead_letters.send(emitter, node.errors, letter, timestamp, origin, identity)

    return combine(emitter.runtime.live(node), parcel, refuse)


def _reject(emitter: Emitter, stream: str, rows: Rows, node: Node, unkeyed: list[Unkeyed]) -> None:
    """Applies the consumer's policy to records whose key cannot be extracted."""
    unkeyed_rows = rows.take(np.array([bad.index for bad in unkeyed]))
    _, identities = emitter.origins(stream, unkeyed_rows)
    for i, (bad, value) in enumerate(zip(unkeyed, unkeyed_rows.values(), strict=True)):
        timestamp, error = int(rows.timestamps[bad.index]), bad.error
        if not dead_letters.takes_letter(node.errors, error):
            raise _no_key(emitter, node, stream, value, error) from error
        letter = dead_letters.letter_of(emitter, node, None, stream, value, timestamp, error)
        identity = identities[i] if identities else b""
        origin = emitter.label.encode()
        dead_letters.send(emitter, node.errors, letter, timestamp, origin, identity)


def _no_key(
    emitter: Emitter, node: Node, stream: str, value: object, error: BaseException
) -> InvalidRecord | UserCodeError:
    """The error for records without a key whose consumer has no policy for them."""
    key = next((i.key.describe() for i in node.inputs if i.stream == stream), "?")
    where = f"computation {node.name!r} cannot take a key ({key}) from a record of {stream!r}"
    kind = InvalidRecord if isinstance(error, InvalidRecord) else UserCodeError
    trace = shortened(error) if kind is UserCodeError else ""
    what = "" if kind is InvalidRecord else f"{type(error).__name__}: "
    return kind(
        f"{where}: {what}{error}. The record, of {emitter.label}: "
        f"{shown(value)}. {_advice(emitter, node, stream)}, or send such records aside: "
        f'errors=to("dead")' + (f"\n{trace}" if trace else "")
    )


def _advice(emitter: Emitter, node: Node, stream: str) -> str:
    """Advice for records whose key cannot be extracted."""
    graph = emitter.runtime.topology.graph
    makers = [n for n in graph.nodes.values() if stream in n.outputs.values()]
    if not makers:
        return "Fix the input (a file that is half read then needs --accept-changed) or the key"
    joined = " (a join: in its select=, also for rows without a partner)"
    return (
        f"{makers[0].name!r} makes these records: keep the key in them"
        f"{joined if hasattr(makers[0].template, 'pairing') else ''}, or key_by() something "
        f"else before {node.name!r}"
    )
