"""A seeded simulation of traffic: vehicles enter, slow down, break down, leave and come back.

Every vehicle reports every 30 seconds, so a second belongs to one of 30 groups of vehicles, and a
step of the simulation moves one group, of all roads at once, in numpy. The number of reports is
exact: on each road it rises in a straight line over the run.

- Congestion: the more vehicles a segment has, the slower they are, so tolls rise.
- Incidents: one, two or three vehicles stop at one place for some minutes. Two or more are an
  accident; one alone is none.
- Re-entry: some new vehicles are vehicles that left some minutes ago, on any road.
- Requests: some reports come with a request for the balance, or for a past day's expenditure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.workloads.linear_road.columns import (
    BALANCE,
    EXPENDITURE,
    INPUT,
    REPORT,
    SEGMENT_FEET,
    SEGMENTS,
)

Ints = np.ndarray[Any, np.dtype[np.int64]]

GROUPS = 30
"""A vehicle reports every 30 seconds."""
FEET_PER_MPH = 44
"""How far a vehicle gets in 30 seconds for each mile per hour."""
ROAD_FEET = SEGMENTS * SEGMENT_FEET
ENTRY, EXIT = 0, 4
DAYS = 69
"""The days before today that expenditure is known for."""
AWAY_S = 120
"""A vehicle stays away this long before it comes back."""


@dataclass(frozen=True)
class Traffic:
    """What is simulated."""

    roads: int = 1
    minutes: int = 60
    seed: int = 1
    first_rate: int = 15
    """Reports per second and road at the beginning."""
    last_rate: int = 1_700
    """Reports per second and road at the end."""
    segments: tuple[int, int] = (0, SEGMENTS)
    """The segments that are used, from and up to; few segments are crowded with little traffic."""
    incidents_per_hour: float = 12.0
    """Per road."""
    asking: float = 0.01
    """The part of reports that come with a request."""
    returning: float = 0.3
    """The part of new vehicles that were there before."""
    begin_minute: int = 0
    """Before this minute the roads are empty; from then on they have the rate of that minute."""

    @property
    def seconds(self) -> int:
        """How long it lasts."""
        return self.minutes * 60

    def rate(self, second: int) -> int:
        """Reports of one road in a second."""
        if second < self.begin_minute * 60:
            return 0
        part = second / max(1, self.seconds - 1)
        return round(self.first_rate + (self.last_rate - self.first_rate) * part)


@dataclass
class Vehicles:
    """The vehicles of one group, in columns."""

    vid: Ints
    xway: Ints
    dir: Ints
    pos: Ints
    lane: Ints
    goal: Ints
    """The segment in which it exits."""
    stopped_until: Ints
    speed: Ints

    @staticmethod
    def none() -> Vehicles:
        """A group without vehicles."""
        return Vehicles(*(np.zeros(0, np.int64) for _ in fields(Vehicles)))

    def __len__(self) -> int:
        return len(self.vid)

    @property
    def seg(self) -> Ints:
        """The segment in which each vehicle is."""
        return self.pos // SEGMENT_FEET

    def take(self, rows: Any) -> Vehicles:
        """Some of them."""
        return Vehicles(*(getattr(self, f.name)[rows] for f in fields(self)))

    def with_more(self, more: Vehicles) -> Vehicles:
        """These and others."""
        both = ((getattr(self, f.name), getattr(more, f.name)) for f in fields(self))
        return Vehicles(*(np.concatenate(pair) for pair in both))


@dataclass
class Breakdown:
    """A place at which vehicles are going to stop."""

    xway: int
    dir: int
    pos: int
    lane: int
    until: int
    wanted: int
    """How many vehicles are still to stop there."""


@dataclass
class PastTolls:
    """The expenditure of past days that requests ask for."""

    tolls: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """(vid, day, xway) -> toll."""

    def table(self) -> pa.Table:
        """As columns, in the order of keys."""
        rows = sorted(self.tolls.items())
        columns = {
            name: pa.array([key[i] for key, _ in rows], pa.int64())
            for i, name in enumerate(("vid", "day", "xway"))
        }
        return pa.table({**columns, "toll": pa.array([toll for _, toll in rows], pa.int64())})


class TrafficSimulation:
    """Makes the input second by second. `history` is complete when all seconds are made."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic
        self.history = PastTolls()
        self._dice = np.random.default_rng(traffic.seed)
        self._groups = [Vehicles.none() for _ in range(GROUPS)]
        cells = traffic.roads * 2 * SEGMENTS
        self._crowd = np.zeros((GROUPS, cells), np.int64)
        """Vehicles of each group in each segment, as of its last step."""
        self._crowded = np.zeros(cells, np.int64)
        """The sum over all groups."""
        low, high = traffic.segments
        self._ramps = self._dice.dirichlet(np.full(high - low, 4.0))
        """How popular each segment is for entering."""
        self._incidents: list[Breakdown] = []
        self._gone: list[tuple[int, Ints]] = []
        """(when, vids) of vehicles that have left and may come back."""
        self._next_vid, self._next_qid = 1, 1

    def seconds(self) -> Iterator[pa.RecordBatch]:
        """The input of each second: reports, then requests."""
        for second in range(self.traffic.seconds):
            yield self._step(second)

    def _step(self, second: int) -> pa.RecordBatch:
        number = second % GROUPS
        group = self._groups[number]
        group = self._without_left(group, second)
        self._drive(group, second)
        self._begin_incidents(second)
        self._stop_some(group, second)
        group = group.with_more(self._entering(group, second))
        self._groups[number] = group
        crowd = np.bincount(_cells(group), minlength=len(self._crowded))
        self._crowded += crowd - self._crowd[number]
        self._crowd[number] = crowd
        return self._batch(group, second)

    def _without_left(self, group: Vehicles, second: int) -> Vehicles:
        """The group without the vehicles that were on the exit lane."""
        left = group.lane == EXIT
        if not left.any():
            return group
        self._gone.append((second, group.vid[left]))
        return group.take(~left)

    def _drive(self, group: Vehicles, second: int) -> None:
        """Moves all vehicles that are not stopped by 30 seconds."""
        if not len(group):
            return
        moving = group.stopped_until <= second
        crowd = self._crowded[_cells(group)]
        usual = 65.0 * np.clip(1.0 - crowd / 500.0, 0.25, 1.0)
        speed = np.clip(usual + self._dice.normal(0.0, 6.0, len(group)), 4, 100).astype(np.int64)
        group.speed[:] = np.where(moving, speed, 0)
        step = group.speed * FEET_PER_MPH
        group.pos += np.where(group.dir == 0, step, -step)
        ended = (group.pos < 0) | (group.pos >= ROAD_FEET)
        np.clip(group.pos, 0, ROAD_FEET - 1, out=group.pos)
        there = np.where(group.dir == 0, group.seg >= group.goal, group.seg <= group.goal)
        lanes = self._dice.integers(1, EXIT, len(group))
        lanes[there | ended] = EXIT
        group.lane[:] = np.where(moving, lanes, group.lane)

    def _begin_incidents(self, second: int) -> None:
        """Now and then something happens on a road."""
        low, high = self.traffic.segments
        often = self.traffic.incidents_per_hour / 3600.0
        for xway in np.flatnonzero(self._dice.random(self.traffic.roads) < often).tolist():
            seg = int(self._dice.choice(np.arange(low, high), p=self._ramps))
            self._incidents.append(
                Breakdown(
                    xway=xway,
                    dir=int(self._dice.integers(0, 2)),
                    pos=seg * SEGMENT_FEET + int(self._dice.integers(0, SEGMENT_FEET)),
                    lane=int(self._dice.integers(1, EXIT)),
                    until=second + int(self._dice.integers(150, 600)),
                    wanted=int(self._dice.choice([1, 2, 3], p=[0.2, 0.65, 0.15])),
                )
            )
        self._incidents = [i for i in self._incidents if i.wanted and i.until > second]

    def _stop_some(self, group: Vehicles, second: int) -> None:
        """A vehicle behind an incident that still wants one stops there."""
        for incident in self._incidents:
            seg = incident.pos // SEGMENT_FEET
            ahead = incident.pos - group.pos if incident.dir == 0 else group.pos - incident.pos
            near = (group.xway == incident.xway) & (group.dir == incident.dir)
            near &= (group.seg == seg) & (ahead >= 0) & (group.lane != EXIT)
            near &= group.stopped_until <= second
            for row in np.flatnonzero(near)[:1].tolist():
                group.pos[row], group.lane[row] = incident.pos, incident.lane
                group.stopped_until[row] = incident.until + int(self._dice.integers(0, 120))
                incident.wanted -= 1

    def _entering(self, group: Vehicles, second: int) -> Vehicles:
        """As many new vehicles as each road needs for its rate."""
        traffic, dice = self.traffic, self._dice
        have = np.bincount(group.xway, minlength=traffic.roads)
        xway = np.repeat(np.arange(traffic.roads), np.maximum(traffic.rate(second) - have, 0))
        count = len(xway)
        low, high = traffic.segments
        seg = dice.choice(np.arange(low, high), count, p=self._ramps)
        dir = dice.integers(0, 2, count)
        trip = dice.integers(1, max(2, (high - low) // 4), count)
        goal = np.clip(np.where(dir == 0, seg + trip, seg - trip), low, high - 1)
        return Vehicles(
            vid=self._vids(count, second),
            xway=xway,
            dir=dir,
            pos=seg * SEGMENT_FEET + dice.integers(0, SEGMENT_FEET, count),
            lane=np.full(count, ENTRY, np.int64),
            goal=goal,
            stopped_until=np.zeros(count, np.int64),
            speed=dice.integers(10, 45, count),
        )

    def _vids(self, count: int, second: int) -> Ints:
        """Numbers of vehicles: some that have been away, the others new."""
        back: list[Ints] = []
        wanted = int(self._dice.binomial(count, self.traffic.returning)) if count else 0
        while wanted and self._gone and self._gone[0][0] + AWAY_S <= second:
            when, vids = self._gone.pop(0)
            back.append(vids[:wanted])
            if len(vids) > wanted:
                self._gone.insert(0, (when, vids[wanted:]))
            wanted -= len(back[-1])
        known = np.concatenate(back) if back else np.zeros(0, np.int64)
        fresh = np.arange(self._next_vid, self._next_vid + count - len(known))
        self._next_vid += len(fresh)
        return self._dice.permutation(np.concatenate([known, fresh]))

    def _batch(self, group: Vehicles, second: int) -> pa.RecordBatch:
        """The lines of a second."""
        asking = np.flatnonzero(self._dice.random(len(group)) < self.traffic.asking)
        kinds = np.where(self._dice.random(len(asking)) < 1 / 6, EXPENDITURE, BALANCE)
        reports, requests = len(group), len(asking)
        qid = np.arange(self._next_qid, self._next_qid + requests)
        self._next_qid += requests
        past = kinds == EXPENDITURE
        asked_road = np.where(past, self._dice.integers(0, self.traffic.roads, requests), -1)
        day = np.where(past, self._dice.integers(1, DAYS + 1, requests), -1)
        self._remember(group.vid[asking][past], day[past], asked_road[past])

        def joined(of_reports: Any, of_requests: Any) -> Ints:
            return np.concatenate(
                [
                    np.broadcast_to(np.asarray(of_reports), reports),
                    np.broadcast_to(np.asarray(of_requests), requests),
                ]
            )

        columns = {
            "type": joined(REPORT, kinds),
            "time": joined(second, second),
            "vid": joined(group.vid, group.vid[asking]),
            "speed": joined(group.speed, -1),
            "xway": joined(group.xway, asked_road),
            "lane": joined(group.lane, -1),
            "dir": joined(group.dir, -1),
            "seg": joined(group.seg, -1),
            "pos": joined(group.pos, -1),
            "qid": joined(-1, qid),
            "day": joined(-1, day),
        }
        arrays = [pa.array(columns[f.name].astype(f.type.to_pandas_dtype())) for f in INPUT]
        return pa.record_batch(arrays, schema=INPUT)

    def _remember(self, vids: Ints, days: Ints, roads: Ints) -> None:
        """Most of what is asked for is in the history; what is not there was nothing."""
        known = self._dice.random(len(vids)) < 0.7
        tolls = self._dice.integers(1, 10_000, len(vids))
        for row in np.flatnonzero(known).tolist():
            place = (int(vids[row]), int(days[row]), int(roads[row]))
            self.history.tolls[place] = int(tolls[row])


def _cells(group: Vehicles) -> Ints:
    """A number for road, direction and segment of each vehicle."""
    return (group.xway * 2 + group.dir) * SEGMENTS + group.seg
