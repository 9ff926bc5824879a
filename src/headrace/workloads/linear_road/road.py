"""One direction of one road: what is known of it, and what a second of reports changes.

All is in columns: a second of reports takes some numpy calls, however many reports it has. Python
runs per vehicle only where vehicles stop.

Order within a second: stopped vehicles that fell silent are gone, then vehicles move off, then
vehicles stop, then those that enter a segment are told what holds now. So answers do not depend on
the order of reports within a second.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from headrace.workloads.linear_road.columns import SEGMENTS

Ints = np.ndarray[Any, np.dtype[np.int64]]

EXIT = 4
EVERY_S = 30
"""A vehicle reports so often; after a longer silence it has left."""
MINUTE_S = 60
STOPPED = 4
"""So many reports from one place make a stopped vehicle."""
ZONE = 4
"""Segments before an accident in which vehicles are alerted and pay nothing."""
AVERAGED = 5
"""Minutes that the average speed is taken over."""
FAST_MPH = 40
FEW = 50

VEHICLE = np.dtype(
    [
        ("vid", "<i8"), ("time", "<i4"), ("seg", "<i2"), ("lane", "<i1"), ("pos", "<i4"),
        ("stays", "<i1"), ("toll", "<i8"),
    ]
)  # fmt: skip
"""A vehicle as of its last report. `stays`: reports from this place, up to four; `toll`: what it
pays when it leaves its segment."""
REPORTED = np.dtype(
    [
        ("time", "<i4"), ("vid", "<i8"), ("speed", "<i4"), ("lane", "<i1"), ("seg", "<i2"),
        ("pos", "<i4"),
    ]
)  # fmt: skip
"""A report, on one road in one direction."""
STATISTICS = np.dtype([("speeds", "<i8"), ("readings", "<i4"), ("vehicles", "<i4")])
"""What a minute has seen in one segment."""
NEVER = -(2**31)
TABLE_MAX = 2**24
"""Numbers of vehicles within such a range are looked up in a table of bits."""
_MINUTES = msgspec.msgpack.Decoder(dict[int, bytes])


class StopPlace(msgspec.Struct, frozen=True, array_like=True):
    """Where a vehicle is stopped."""

    lane: int
    pos: int
    seg: int


class Accident(msgspec.Struct, array_like=True):
    """Two or more vehicles are stopped at a place."""

    place: StopPlace
    began: int


class Stops(msgspec.Struct, array_like=True):
    """Stopped vehicles, and the accidents among them."""

    stopped: dict[int, StopPlace] = {}
    accidents: list[Accident] = []


@dataclass
class RoadFindings:
    """What some seconds of reports lead to, as pieces of columns."""

    tolls: list[tuple[Ints, ...]] = field(default_factory=list)
    """time, vid, seg, lav, toll"""
    alerts: list[tuple[Ints, ...]] = field(default_factory=list)
    """time, vid, seg of the accident"""
    charges: list[tuple[Ints, ...]] = field(default_factory=list)
    """time, vid, toll"""


class Road:
    """The state of one direction of a road, while some seconds are processed."""

    def __init__(
        self,
        direction: int,
        vehicles: Iterable[bytes],
        minutes: bytes,
        stops: bytes,
        reports: np.ndarray[Any, Any],
    ) -> None:
        """`vehicles`: in the order of their seconds. `reports`: in the order of time."""
        self._direction = direction
        self._stops = msgspec.msgpack.decode(stops, type=Stops) if stops else Stops()
        self._minutes = {
            minute: np.frombuffer(data, STATISTICS).copy()
            for minute, data in (_MINUTES.decode(minutes) if minutes else {}).items()
        }
        # Only vehicles that report now, or are stopped, are looked at.
        standing = np.array(list(self._stops.stopped), np.int64)
        vids, places = np.unique(np.concatenate([reports["vid"], standing]), return_inverse=True)
        self._of_report = places[: len(reports)]
        known = _of_vehicles(np.frombuffer(b"".join(vehicles), VEHICLE), vids)
        of_known = np.searchsorted(vids, known["vid"])
        table = np.zeros(len(vids), VEHICLE)
        table["time"] = NEVER
        table[of_known] = known  # the newest one comes last, and stays
        table["vid"] = vids
        self._columns = {name: table[name].copy() for name in VEHICLE.names or ()}
        self._reports = reports
        self._quotes: tuple[int, Ints, Ints] = (
            -1,
            np.zeros(0, np.int64),
            np.zeros(0, np.int64),
        )
        self._first = int(reports["time"][0]) if len(reports) else 0
        self._last = int(reports["time"][-1]) if len(reports) else 0
        self._left_in = self._first // MINUTE_S
        left = (known["time"] >= self._left_in * MINUTE_S) & (
            known["seg"] != table["seg"][of_known]
        )
        self._left = _visits(of_known[left], known["seg"][left], known["time"][left])
        """(vehicle, segment) of visits in this minute that have ended -> the time of the last
        report there. Almost all vehicles that are back in a segment come in another minute."""

    def run(self, found: RoadFindings) -> None:
        """Processes all reports, second by second."""
        times = self._reports["time"]
        starts = np.flatnonzero(np.concatenate([[True], times[1:] != times[:-1]]))
        ends = [*starts[1:].tolist(), len(times)]
        for start, end in zip(starts.tolist(), ends, strict=True):
            self._second(int(times[start]), start, end, found)

    def _second(self, now: int, start: int, end: int, found: RoadFindings) -> None:
        rows, at = self._reports[start:end], self._of_report[start:end]
        if len(at) > 1:
            _, firsts = np.unique(at, return_index=True)
            if len(firsts) < len(at):  # a vehicle reports once in a second
                firsts.sort()
                rows, at = rows[firsts], at[firsts]
        seg, lane, pos = rows["seg"], rows["lane"], rows["pos"]
        before = {name: column[at] for name, column in self._columns.items() if name != "vid"}
        driving = (before["time"] >= now - EVERY_S) & (before["lane"] != EXIT)
        same = driving & (lane == before["lane"]) & (pos == before["pos"]) & (lane != EXIT)
        stays = np.where(same, np.minimum(before["stays"] + 1, STOPPED), 1)
        self._count(now, rows, at, before)
        self._stop_and_go(now, rows, before, same, stays)
        other = seg != before["seg"]
        pays = driving & other & (before["toll"] > 0)
        if pays.any():
            found.charges.append(
                (np.full(int(pays.sum()), now), rows["vid"][pays], before["toll"][pays])
            )
        enters = (lane != EXIT) & (other | ~driving)
        tolls = np.where(other | ~driving, 0, before["toll"])
        if enters.any():
            tolls[enters] = self._tell(now, rows["vid"][enters], seg[enters], found)
        columns = self._columns
        columns["time"][at], columns["seg"][at], columns["lane"][at] = now, seg, lane
        columns["pos"][at], columns["stays"][at], columns["toll"][at] = pos, stays, tolls

    def _count(
        self, now: int, rows: np.ndarray[Any, Any], at: Ints, before: dict[str, Any]
    ) -> None:
        """Adds the reports to the statistics of their minute."""
        minute, seg = now // MINUTE_S, rows["seg"]
        statistics = self._minutes.get(minute)
        if statistics is None:
            statistics = self._minutes[minute] = np.zeros(SEGMENTS, STATISTICS)
        again = before["time"] >= minute * MINUTE_S
        counted = again & (before["seg"] == seg)
        moved = again & ~counted
        if self._left_in != minute:
            self._left, self._left_in = {}, minute
        if moved.any():
            visits = _visits(at[moved], seg[moved], at[moved])
            counted[moved] = [visit in self._left for visit in visits]
            self._left.update(_visits(at[moved], before["seg"][moved], before["time"][moved]))
        statistics["speeds"] += np.bincount(seg, rows["speed"], SEGMENTS).astype(np.int64)
        statistics["readings"] += np.bincount(seg, minlength=SEGMENTS).astype(np.int32)
        statistics["vehicles"] += np.bincount(seg[~counted], minlength=SEGMENTS).astype(np.int32)

    def _stop_and_go(
        self, now: int, rows: np.ndarray[Any, Any], before: dict[str, Any], same: Any, stays: Any
    ) -> None:
        """Notes which vehicles have moved off, and which have stopped."""
        stops = self._stops
        if stops.stopped:
            vids = np.array(list(stops.stopped), np.int64)
            known, times = self._columns["vid"], self._columns["time"]
            at = np.minimum(np.searchsorted(known, vids), len(known) - 1)
            heard = (known[at] == vids) & (times[at] >= now - EVERY_S)
            gone = set(vids[~heard].tolist())
            moved = (before["stays"] >= STOPPED) & ~same
            gone.update(rows["vid"][moved].tolist())
            for vid in gone & stops.stopped.keys():
                left = stops.stopped.pop(vid)
                stops.accidents = [a for a in stops.accidents if a.place != left]
        stopping = same & (stays == STOPPED) & (before["stays"] < STOPPED)
        for row in np.flatnonzero(stopping).tolist():
            report = rows[row]
            place = StopPlace(int(report["lane"]), int(report["pos"]), int(report["seg"]))
            stops.stopped[int(report["vid"])] = place
            here = sum(other == place for other in stops.stopped.values())
            if here >= 2 and all(a.place != place for a in stops.accidents):
                stops.accidents.append(Accident(place, now))

    def _tell(self, now: int, vids: Ints, seg: Ints, found: RoadFindings) -> Ints:
        """Notifies vehicles that enter segments; returns the toll of each."""
        minute = now // MINUTE_S
        if self._quotes[0] != minute:
            self._quotes = (minute, *self._quote(minute))
        _, speeds, quotes = self._quotes
        tolls = quotes[seg]
        times = np.full(len(vids), now)
        nearest = self._accident_ahead(minute)
        if nearest is not None:
            ahead = nearest[seg]
            alerted = ahead >= 0
            tolls = np.where(alerted, 0, tolls)
            if alerted.any():
                found.alerts.append((times[alerted], vids[alerted], ahead[alerted]))
        found.tolls.append((times, vids, seg, speeds[seg], tolls))
        return tolls

    def _quote(self, minute: int) -> tuple[Ints, Ints]:
        """The average speed of each segment in a minute, and its toll without accidents."""
        none = np.zeros(SEGMENTS, STATISTICS)
        past = [self._minutes.get(minute - n, none) for n in range(1, AVERAGED + 1)]
        speeds = np.sum([one["speeds"] for one in past], axis=0)
        readings = np.sum([one["readings"] for one in past], axis=0, dtype=np.int64)
        vehicles = past[0]["vehicles"].astype(np.int64)
        free = (speeds >= FAST_MPH * readings) | (vehicles <= FEW)
        tolls = np.where(free, 0, 2 * (vehicles - FEW) ** 2)
        return speeds // np.maximum(readings, 1), tolls

    def _accident_ahead(self, minute: int) -> Ints | None:
        """For each segment, that of the nearest accident in its zone, or -1; None if all are."""
        segments = [a.place.seg for a in self._stops.accidents if a.began // MINUTE_S < minute]
        if not segments:
            return None
        nearest = np.full(SEGMENTS, -1, np.int64)
        # The nearest one is written last.
        for seg in sorted(segments, reverse=self._direction == 0):
            low, high = (seg - ZONE, seg) if self._direction == 0 else (seg, seg + ZONE)
            nearest[max(low, 0) : high + 1] = seg
        return nearest

    # What is kept ---------------------------------------------------------

    def keeps_from(self) -> int:
        """Vehicles that reported earlier are not needed for later seconds.

        The last report matters while the trip may go on, and for counting a vehicle once a minute.
        """
        after = self._last + 1
        return min(after - EVERY_S, after // MINUTE_S * MINUTE_S)

    def vehicles(self) -> dict[int, bytes]:
        """The vehicles that reported, by the second of their last report; and, by the second of
        its last report, each visit of this minute that has ended."""
        times = self._columns["time"]
        changed = np.flatnonzero(times >= max(self._first, self.keeps_from()))
        rows = np.zeros(len(changed), VEHICLE)
        for name, column in self._columns.items():
            rows[name] = column[changed]
        rows = np.concatenate([rows, self._ended_visits()])
        rows = rows[np.argsort(rows["time"], kind="stable")]
        bounds = np.flatnonzero(np.diff(rows["time"])) + 1
        return {
            int(some["time"][0]): some.tobytes() for some in np.split(rows, bounds) if len(some)
        }

    def _ended_visits(self) -> np.ndarray[Any, Any]:
        since = max(self._first, (self._last + 1) // MINUTE_S * MINUTE_S)
        ended = [(*visit, time) for visit, time in self._left.items() if time >= since]
        rows = np.zeros(len(ended), VEHICLE)
        if ended:
            at, rows["seg"], rows["time"] = np.array(ended, np.int64).T
            rows["vid"] = self._columns["vid"][at]
        return rows

    def minutes(self) -> bytes:
        """The statistics of all minutes that still matter."""
        oldest = (self._last + 1) // MINUTE_S - AVERAGED
        kept = {m: some.tobytes() for m, some in sorted(self._minutes.items()) if m >= oldest}
        return msgspec.msgpack.encode(kept)

    def stops(self) -> bytes:
        """Stopped vehicles and accidents; empty if there are none."""
        return msgspec.msgpack.encode(self._stops) if self._stops.stopped else b""


def _visits(at: Ints, seg: Ints, time: Ints) -> dict[tuple[int, int], int]:
    return dict(zip(zip(at.tolist(), seg.tolist(), strict=True), time.tolist(), strict=True))


def _of_vehicles(rows: np.ndarray[Any, Any], vids: Ints) -> np.ndarray[Any, Any]:
    """The rows of some vehicles. Their numbers usually lie close together."""
    if not len(rows) or not len(vids):
        return rows[:0]
    near = int(vids[-1]) - int(vids[0]) < TABLE_MAX
    found: np.ndarray[Any, Any] = rows[np.isin(rows["vid"], vids, kind="table" if near else "sort")]
    return found
