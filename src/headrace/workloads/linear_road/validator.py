"""Derives all answers again, from the rules alone: finds what is missing, wrong, doubled or late.

Plain Python over the whole input, report by report. It shares no code with the pipeline: not its
numbers, not its way of counting, not its state.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

LIMIT_S = 5.0
"""An answer that takes longer is late."""
EXAMPLES_MAX = 5


class PositionReport(NamedTuple):
    """A position report of one road."""

    vid: int
    speed: int
    lane: int
    dir: int
    seg: int
    pos: int


class RoadRequest(NamedTuple):
    """A request for a balance, or (with a day) for a past day's expenditure."""

    time: int
    vid: int
    qid: int
    day: int | None = None
    xway: int | None = None


class RoadAnswer(NamedTuple):
    """An answer as it was given: what it answers, what it says, how long it took."""

    cause: tuple[int, ...]
    """(vid, time, dir) of the report, or (qid, vid, time)."""
    says: tuple[int, ...]
    """Toll: lav, toll. Alert: xway, seg. Balance: result_time, balance. Expenditure: toll."""
    took_s: float | None = None
    """None if its cause was not timed."""


@dataclass
class GivenAnswers:
    """All answers of a run, to be read again and again."""

    tolls: Callable[[int], Iterable[RoadAnswer]]
    """Of a road."""
    alerts: Callable[[int], Iterable[RoadAnswer]]
    """Of a road."""
    balances: Callable[[], Iterable[RoadAnswer]]
    expenditures: Callable[[], Iterable[RoadAnswer]]
    others: Callable[[int], Iterable[RoadAnswer]] = lambda roads: ()
    """What is no answer of these: of another type, or of a road beyond so many."""


@dataclass
class RoadInput:
    """The input of a run."""

    roads: int
    reports: Callable[[int], Iterable[tuple[int, list[PositionReport]]]]
    """(second, its reports) of a road, in the order of time."""
    requests: list[RoadRequest]
    history: dict[tuple[int, int, int], int]
    """(vid, day, xway) -> what was spent."""


@dataclass
class RoadVerdict:
    """What was found, by kind of answer."""

    checked: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    missing: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    wrong: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    doubled: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    unasked: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    late: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    examples: list[str] = field(default_factory=list)
    tolls_above_zero: int = 0

    @property
    def right(self) -> bool:
        """Whether every answer is there, right, and there once."""
        return not any((self.missing, self.wrong, self.doubled, self.unasked))

    @property
    def in_time(self) -> bool:
        """Whether no answer was late."""
        return not self.late

    def compare(
        self,
        kind: str,
        expected: dict[tuple[int, ...], tuple[int, ...]],
        given: Iterable[RoadAnswer],
    ) -> None:
        """Compares answers of one kind with the expected ones."""
        seen: set[tuple[int, ...]] = set()
        for cause, says, took_s in given:
            self.checked[kind] += 1
            right = expected.get(cause)
            if right is None:
                self._note(self.unasked, kind, "was not asked for", cause, says)
            elif cause in seen:
                self._note(self.doubled, kind, "was given again", cause, says)
            elif right != says:
                self._note(self.wrong, kind, f"should be {right}", cause, says)
            self._time(kind, cause, says, took_s)
            seen.add(cause)
        for cause, says in expected.items():
            if cause not in seen:
                self._note(self.missing, kind, "is missing", cause, says)

    def compare_all(
        self,
        kind: str,
        expected: dict[tuple[int, ...], list[tuple[int, ...]]],
        given: Iterable[RoadAnswer],
    ) -> None:
        """The same where a cause may come several times: then it has as many answers."""
        left = {cause: Counter(says) for cause, says in expected.items()}
        others: list[RoadAnswer] = []
        for answer in given:
            cause, says, took_s = answer
            self.checked[kind] += 1
            self._time(kind, cause, says, took_s)
            if cause not in left:
                self._note(self.unasked, kind, "was not asked for", cause, says)
            elif left[cause][says] > 0:
                left[cause][says] -= 1
            else:
                others.append(answer)
        for cause, says, _ in others:
            right = next(left[cause].elements(), None)
            if right is None:
                self._note(self.doubled, kind, "was given again", cause, says)
            else:
                left[cause][right] -= 1
                self._note(self.wrong, kind, f"should be {right}", cause, says)
        for cause, counted in left.items():
            for says in counted.elements():
                self._note(self.missing, kind, "is missing", cause, says)

    def _time(
        self, kind: str, cause: tuple[int, ...], says: tuple[int, ...], took_s: float | None
    ) -> None:
        if took_s is not None and took_s > LIMIT_S:
            self._note(self.late, kind, f"took {took_s:.1f} s", cause, says)

    def _note(
        self,
        where: dict[str, int],
        kind: str,
        what: str,
        cause: tuple[int, ...],
        says: tuple[int, ...],
    ) -> None:
        where[kind] += 1
        if where[kind] <= EXAMPLES_MAX:
            self.examples.append(f"{kind} {says} for {cause} {what}")


def validate(asked: RoadInput, given: GivenAnswers) -> RoadVerdict:
    """Checks all answers of a run."""
    verdict = RoadVerdict()
    askers = {request.vid for request in asked.requests if request.day is None}
    paid: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for xway in range(asked.roads):
        road = Rules(xway)
        for second, reports in asked.reports(xway):
            for vid, toll in road.second(second, reports):
                if vid in askers:
                    paid[vid].append((second, toll))
        verdict.tolls_above_zero += sum(toll > 0 for _, toll in road.tolls.values())
        verdict.compare("toll", road.tolls, given.tolls(xway))  # type: ignore[arg-type]
        verdict.compare("alert", road.alerts, given.alerts(xway))  # type: ignore[arg-type]
    balances: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
    past: dict[tuple[int, ...], list[tuple[int, ...]]] = defaultdict(list)
    for request in asked.requests:
        cause = request.qid, request.vid, request.time
        if request.day is None:
            before = [(when, toll) for when, toll in paid[request.vid] if when <= request.time]
            newest = max((when for when, _ in before), default=0)
            total = sum(toll for _, toll in before)
            balances[cause].append((newest, total))
        else:
            spent = asked.history.get((request.vid, request.day, request.xway or 0), 0)
            past[cause].append((spent,))
    verdict.compare_all("balance", balances, given.balances())
    verdict.compare_all("expenditure", past, given.expenditures())
    verdict.compare("other", {}, given.others(asked.roads))
    return verdict


@dataclass(slots=True)
class _Trip:
    """A vehicle on its way, as of its last report."""

    time: int
    dir: int
    seg: int
    lane: int
    pos: int
    times_here: int
    owes: int


class Rules:
    """The rules, for one road."""

    def __init__(self, xway: int) -> None:
        self.xway = xway
        self.tolls: dict[tuple[int, int, int], tuple[int, int]] = {}
        """(vid, time, dir) -> lav, toll."""
        self.alerts: dict[tuple[int, int, int], tuple[int, int]] = {}
        """(vid, time, dir) -> xway, seg of the accident."""
        self._trips: dict[tuple[int, int], _Trip] = {}
        """(vid, dir) -> its trip: a direction knows only what is reported on it."""
        self._readings: dict[tuple[int, int, int], list[int]] = defaultdict(lambda: [0, 0])
        """(minute, dir, seg) -> sum and number of speeds."""
        self._seen: dict[tuple[int, int, int], set[int]] = defaultdict(set)
        """(minute, dir, seg) -> vehicles."""
        self._standing: dict[tuple[int, int, int], set[int]] = defaultdict(set)
        """(dir, lane, pos) -> vehicles stopped there."""
        self._accidents: dict[tuple[int, int, int], tuple[int, int]] = {}
        """(dir, lane, pos) -> the minute in which it happened, segment."""

    def second(self, now: int, reports: list[PositionReport]) -> Iterator[tuple[int, int]]:
        """The reports of one second; yields (vid, toll) of what is charged."""
        minute = now // 60 + 1
        if now % 60 == 0:
            self._forget(minute)
        self._drop_silent(now)
        arrived: list[tuple[PositionReport, _Trip | None]] = []
        reported: set[tuple[int, int]] = set()
        for report in reports:
            if (report.vid, report.dir) in reported:
                continue
            reported.add((report.vid, report.dir))
            arrived.append((report, self._trip(report, now)))
        # First all that moves, then all that stops, then all that is asked.
        for report, before in arrived:
            old = self._trips.get((report.vid, report.dir))
            moved = before is None or not _stays(before, report)
            if moved and old is not None and old.times_here >= 4:
                self._moves(report.vid, (old.dir, old.lane, old.pos))
        for report, before in arrived:
            here = 1
            if before is not None and report.lane != 4 and _stays(before, report):
                here = before.times_here + 1
            if here == 4:
                self._stops(report, minute)
            reading = self._readings[minute, report.dir, report.seg]
            reading[0] += report.speed
            reading[1] += 1
            self._seen[minute, report.dir, report.seg].add(report.vid)
            entered = before is None or before.seg != report.seg
            owes = 0 if before is None or entered else before.owes
            if before is not None and entered and before.owes:
                yield report.vid, before.owes
            self._trips[report.vid, report.dir] = _Trip(
                now, report.dir, report.seg, report.lane, report.pos, here, owes
            )
        for report, before in arrived:
            if report.lane != 4 and (before is None or before.seg != report.seg):
                self._trips[report.vid, report.dir].owes = self._notify(report, now, minute)

    def _trip(self, report: PositionReport, now: int) -> _Trip | None:
        """The trip that the report continues. One that left, or fell silent, begins another."""
        trip = self._trips.get((report.vid, report.dir))
        if trip is None or trip.lane == 4 or now - trip.time > 30:
            return None
        return trip

    def _notify(self, report: PositionReport, now: int, minute: int) -> int:
        cell = (report.dir, report.seg)
        total = count = 0
        for earlier in range(minute - 5, minute):
            if (earlier, *cell) in self._readings:
                speeds, readings = self._readings[earlier, *cell]
                total, count = total + speeds, count + readings
        vehicles = len(self._seen.get((minute - 1, *cell), ()))
        lav = total // count if count else 0
        ahead = self._ahead(report, minute)
        toll = 0
        if ahead is not None:
            self.alerts[report.vid, now, report.dir] = (self.xway, ahead)
        elif count and total < 40 * count and vehicles > 50:
            toll = 2 * (vehicles - 50) ** 2
        self.tolls[report.vid, now, report.dir] = (lav, toll)
        return toll

    def _ahead(self, report: PositionReport, minute: int) -> int | None:
        """The segment of the nearest accident, from here to four segments on."""
        onward = 1 if report.dir == 0 else -1
        for distance in range(5):
            seg = report.seg + onward * distance
            for (dir, _, _), (since, where) in self._accidents.items():
                if dir == report.dir and where == seg and since < minute:
                    return seg
        return None

    def _stops(self, report: PositionReport, minute: int) -> None:
        place = (report.dir, report.lane, report.pos)
        self._standing[place].add(report.vid)
        if len(self._standing[place]) >= 2 and place not in self._accidents:
            self._accidents[place] = (minute, report.seg)

    def _moves(self, vid: int, place: tuple[int, int, int]) -> None:
        if vid in self._standing[place]:
            self._standing[place].discard(vid)
            self._accidents.pop(place, None)

    def _drop_silent(self, now: int) -> None:
        """A stopped vehicle that has not reported for more than 30 seconds is no longer there."""
        for place, vids in list(self._standing.items()):
            for vid in [vid for vid in vids if now - self._trips[vid, place[0]].time > 30]:
                self._moves(vid, place)
            if not vids:
                del self._standing[place]

    def _forget(self, minute: int) -> None:
        """Drops the minutes that no average needs any more."""
        for known in (self._readings, self._seen):
            for cell in [cell for cell in known if cell[0] < minute - 6]:
                del known[cell]


def _stays(before: _Trip, report: PositionReport) -> bool:
    return before.pos == report.pos and before.lane == report.lane
