"""How an epoch that ran again differs from its commit: by unit of work, key and field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from headrace.causal.packing import unpack_determinants
from headrace.engine.history.epoch_at import Past
from headrace.errors import HeadraceError
from headrace.model.values.codec import decode_value
from headrace.model.values.keys import decode_key
from headrace.pipeline.graph.topology import Topology
from headrace.plan.epoch import Report, StagedFile
from headrace.plan.units import TORN
from headrace.state.segment import ENTRY, FIELD, TIMER, read_cells
from headrace.store.overlay import Overlay
from headrace.store.store import Store
from headrace.worker.watching.hook_recorder import HookCall

DETAILS_MAX = 5


class Difference(msgspec.Struct):
    """A unit of work whose output differs from the commit."""

    label: str
    computation: str
    """The computation, or the stream of a source."""
    slot: int | None
    details: list[str]
    """The differences, as far as they can be described."""
    repeats: bool = True
    """Whether two replays of it agree; if not, the code is not deterministic."""
    call: HookCall | None = None
    """The first hook call in which two replays differ, and the same call in the other replay."""
    other: HookCall | None = None


def differences(
    topology: Topology, past: Past, reports: Sequence[Report], store: Store, overlay: Overlay
) -> list[Difference]:
    """Units of work that differ, producers before consumers."""
    found = []
    digests = past.commit.digests
    for report in reports:
        if report.error == TORN:
            continue  # a producer failed, which is reported
        if report.error is not None or digests.get(report.label) != report.digest:
            details = list(_details(past, report, store, overlay))
            found.append(Difference(report.label, report.host, report.slot, details))
    made = {report.label for report in reports}
    found += [
        Difference(label, label.rpartition("/")[0], None, ["it did not run"])
        for label in digests
        if label not in made
    ]
    # A unit that only consumed other input is a consequence, so causes are listed first.
    hosts = {d.computation for d in found}
    consumers = {
        name for name, node in topology.keyed.items() if hosts.intersection(topology.feeders(node))
    }
    return sorted(found, key=lambda d: d.computation in consumers)


def first_unlike(
    calls: Sequence[HookCall], again: Sequence[HookCall]
) -> tuple[HookCall | None, HookCall | None] | None:
    """The first hook call that acted differently the second time; None if all agree."""
    others = {_where(call): call for call in again}
    for call in calls:
        other = others.pop(_where(call), None)
        if other is None or _did(call) != _did(other):
            return call, other
    return (None, next(iter(others.values()))) if others else None


def _where(call: HookCall) -> tuple[str, str, str, int]:
    return call.label, call.computation, repr(call.key), call.ordinal


def _did(call: HookCall) -> str:
    return repr((call.before, call.after, call.produced, call.timers, call.asked, call.error))


def _details(past: Past, report: Report, store: Store, overlay: Overlay) -> Iterator[str]:
    if report.error is not None:
        yield f"it failed: {report.message.strip()}"
        return
    if report.label not in past.commit.digests:
        yield "the epoch had no such unit of work"
        return
    yield from _state_details(past, report, store, overlay)
    then = {_staged_place(f): f for f in past.commit.staged}
    for file in report.staged:
        before = then.get(_staged_place(file))
        if before is None:
            yield f"sink {file.sink!r}: {file.rows} rows, where there were none"
        elif before.rows != file.rows:
            yield f"sink {file.sink!r}: {file.rows} rows, where there were {before.rows}"
        elif before.digest != file.digest:
            yield f"sink {file.sink!r}: {file.rows} rows, as many as then, with other contents"
    here = {_staged_place(f) for f in report.staged}
    for place, before in then.items():
        if before.label == report.label and place not in here:
            yield f"sink {before.sink!r}: no rows, where there were {before.rows}"
    then_asked = len(unpack_determinants(past.commit.determinants.get(report.label, b"")))
    asked = len(unpack_determinants(report.determinants))
    if asked != then_asked:
        yield f"{asked} calls to external systems, where there were {then_asked}"


def _staged_place(file: StagedFile) -> tuple[str, str, str]:
    """What a staged file is compared with: that of the same unit, and of the same directory."""
    return file.sink, file.label, file.name.rpartition("/")[0]


def _state_details(past: Past, report: Report, store: Store, overlay: Overlay) -> Iterator[str]:
    """Cells of the slot's delta that differ."""
    if report.slot is None or report.delta is None:
        return
    then = past.commit.deltas.get(report.host, {}).get(report.slot)
    segment = then.segment if then else None
    if segment == report.delta.segment:
        return
    try:
        before = _cells(store, segment, past.position if then and then.rides else 0)
        after = _cells(overlay, report.delta.segment)
    except HeadraceError:
        yield "its state differs; what it was is no longer kept"
        return
    differing = [c for c in dict.fromkeys([*before, *after]) if before.get(c) != after.get(c)]
    for cell in sorted(differing)[:DETAILS_MAX]:
        was, now = _shown(cell, before.get(cell)), _shown(cell, after.get(cell))
        yield f"key {decode_key(cell[0])!r}: {_place(cell)} is {now} here, {was} in the commit"
    if len(differing) > DETAILS_MAX:
        yield f"and {len(differing) - DETAILS_MAX:,} more cells of state"


_CellPlace = tuple[bytes, int, str, bytes]


def _cells(store: Store, name: str | None, at: int = 0) -> dict[_CellPlace, tuple[Any, ...]]:
    return {
        (c.key, c.kind, c.field, c.entry): (c.value, c.time, c.tombstone)
        for c in read_cells(store, name, at)
    }


def _place(cell: _CellPlace) -> str:
    _, kind, field, entry = cell
    if kind == FIELD:
        return field
    if kind == ENTRY:
        return f"{field}[{decode_key(entry)!r}]"
    if kind == TIMER:
        return f"its {field} timer" if not entry else f"its {field} timer {_tag(entry)}"
    return "a record that waits" if field else "its hold"


def _tag(entry: bytes) -> str:
    try:
        return repr(decode_key(entry))
    except (ValueError, IndexError, HeadraceError):
        return "of its TTL"


def _shown(cell: _CellPlace, found: tuple[Any, ...] | None) -> str:
    if found is None:
        return "unchanged"
    value, time, gone = found
    if gone:
        return "gone"
    return f"{decode_value(value)!r:.200}" if cell[1] in (FIELD, ENTRY) else f"at {time}"
