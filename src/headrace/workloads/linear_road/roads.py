"""`Roads`: the computation behind tolls, alerts and charges, keyed by road and direction.

Reports wait until the watermark says that their second is complete, then `Road` processes them. So
answers do not depend on how the input was cut into epochs. Where the source completes seconds,
nothing ever waits.

State is written in proportion to the reports: a vehicle reports every 30 seconds, so the vehicles
that reported in one second are one entry of a map, which is removed when it is too old to matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from headrace import SECOND, Computation, Map, state
from headrace.model.context import TableContext
from headrace.workloads.linear_road.answers import ALERT, TOLL, answer_table
from headrace.workloads.linear_road.road import REPORTED, Ints, Road, RoadFindings

ANSWERS, CHARGES = "answers", "charges"
KEY = ("xway", "dir")


class Roads(Computation):
    """Tolls and accidents of one direction of a road."""

    vehicles: Map[int, bytes] = state()
    """Second -> the vehicles that reported then, as rows of `VEHICLE`."""
    waiting: bytes = state(b"")
    """Reports that wait for the watermark, as rows of `REPORTED`."""
    minutes: bytes = state(b"")
    """The statistics of all segments in the last minutes."""
    stops: bytes = state(b"")
    """Stopped vehicles and accidents."""

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Processes the reports whose second is complete."""
        reports = np.empty(table.num_rows, REPORTED)
        for name in REPORTED.names or ():
            reports[name] = table[name].to_numpy()
        self._advance(table["key_index"].to_numpy(), reports, ctx)

    def process_timers(self, table: pa.Table, ctx: TableContext) -> None:
        """Processes reports that have waited, of roads without new ones."""
        keys = np.unique(table["key_index"].to_numpy())
        self._advance(keys[:0], np.empty(0, REPORTED), ctx, keys)

    def _advance(
        self,
        key_index: Ints,
        reports: np.ndarray[Any, Any],
        ctx: TableContext,
        due: Iterable[int] = (),
    ) -> None:
        keys, fields = ctx.keys(), ctx.read()
        waiting, minutes, stops = (fields[n].to_pylist() for n in ("waiting", "minutes", "stops"))
        vehicles = _by_key(ctx.entries("vehicles"))
        complete = ctx.watermark_after // SECOND  # seconds before this one
        order = np.argsort(key_index, kind="stable")
        bounds = np.searchsorted(key_index[order], np.arange(len(keys) + 1))
        made: list[tuple[tuple[int, int], RoadFindings]] = []
        for key in sorted({*np.unique(key_index).tolist(), *due}):
            mine = reports[order[bounds[key] : bounds[key + 1]]]
            if waiting[key]:
                mine = np.concatenate([np.frombuffer(waiting[key], REPORTED), mine])
            if (np.diff(mine["time"]) < 0).any():
                mine = mine[np.argsort(mine["time"], kind="stable")]
            ready = int(np.searchsorted(mine["time"], complete))
            self._wake(key, bool(waiting[key]), mine[ready:], ctx)
            waiting[key] = mine[ready:].tobytes()
            if not ready:
                continue
            past = vehicles.get(key, {})
            road = Road(keys[key][1], past.values(), minutes[key], stops[key], mine[:ready])
            found = RoadFindings()
            road.run(found)
            made.append((keys[key], found))
            minutes[key], stops[key] = road.minutes(), road.stops()
            old = [second for second in past if second < road.keeps_from()]
            changed: dict[int, bytes | None] = {**dict.fromkeys(old), **road.vehicles()}
            ctx.put_entries("vehicles", [key] * len(changed), list(changed), list(changed.values()))
        ctx.write(waiting=waiting, minutes=minutes, stops=stops)
        self._produce(made, ctx)

    def _wake(self, key: int, waited: bool, left: np.ndarray[Any, Any], ctx: TableContext) -> None:
        """Wakes when the first of the reports that must wait are complete."""
        if len(left):
            first = int(left["time"][0]) * SECOND
            ctx.set_timers([key], [first + SECOND], hold=[first])
        elif waited:
            ctx.cancel_timers([key])

    def _produce(self, made: list[tuple[tuple[int, int], RoadFindings]], ctx: TableContext) -> None:
        """Sends tolls and alerts as answers, and charges."""
        tolls = _joined((key, found.tolls) for key, found in made)
        if tolls:
            xway, dir, time, vid, seg, lav, toll = tolls
            columns = dict(time=time, vid=vid, xway=xway, dir=dir, seg=seg, lav=lav, toll=toll)
            _send(ctx, answer_table(TOLL, **columns), time, ANSWERS)
        alerts = _joined((key, found.alerts) for key, found in made)
        if alerts:
            xway, dir, time, vid, seg = alerts
            table = answer_table(ALERT, time=time, vid=vid, xway=xway, dir=dir, seg=seg)
            _send(ctx, table, time, ANSWERS)
        charges = _joined((key, found.charges) for key, found in made)
        if charges:
            _, _, time, vid, toll = charges
            _send(ctx, pa.table({"vid": vid, "time": time, "toll": toll}), time, CHARGES)


def _send(ctx: TableContext, table: pa.Table, time: Ints, to: str) -> None:
    ctx.produce_table(table, to=to, timestamp=time * SECOND, ties="content")


def _joined(pieces: Iterable[tuple[tuple[int, int], list[tuple[Ints, ...]]]]) -> list[Ints]:
    """The pieces of all roads as whole columns, after the road and the direction."""
    parts: list[list[Ints]] = []
    for (xway, dir), some in pieces:
        for columns in some:
            count = len(columns[0])
            parts.append([np.full(count, xway), np.full(count, dir), *columns])
    return [np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True)]


def _by_key(table: pa.Table) -> dict[int, dict[int, Any]]:
    """Entries of a map, by key, in the order of entries."""
    found: dict[int, dict[int, Any]] = {}
    columns = (table[name].to_pylist() for name in ("key_index", "entry", "value"))
    for key, entry, value in zip(*columns, strict=True):
        found.setdefault(key, {})[entry] = value
    return found
