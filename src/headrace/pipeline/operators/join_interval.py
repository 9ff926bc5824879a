"""The interval join: `left.time + lower <= right.time <= left.time + upper`.

State is bounded. A row's last possible partner is known, and when the watermark
has passed that, the row goes:

- an unmatched row of an outer side has a timer of its own, which holds the output
  watermark at the row's time, is cancelled by the first partner, and otherwise
  sends the row out alone;
- all other rows go by sweeps, at most `SWEEPS` to the length of the interval.

No timer sets a timer: under the final watermark such would not fire.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidPipeline
from headrace.model.computation import Computation
from headrace.model.map import Map
from headrace.model.state import state
from headrace.model.time import END, Duration, duration
from headrace.pipeline.operators.join_rows import Kept, Pairing

if TYPE_CHECKING:
    from headrace.model.context import Context
    from headrace.model.record import Record, Timer

SWEEPS = 8
_LEFT, _RIGHT = 0, 1


@dataclass(frozen=True)
class Interval:
    """How far a right record's time may lie from a left one's, both ends included."""

    lower_us: int
    upper_us: int

    def __post_init__(self) -> None:
        if self.lower_us > self.upper_us:
            raise InvalidPipeline(
                f"interval: its lower end ({self.lower_us} us) lies above its upper end "
                f"({self.upper_us} us)"
            )


def interval(lower: Duration, upper: Duration) -> Interval:
    """Right records from `left.time + lower` to `left.time + upper`, both included.

    Both are durations, and may be negative: `interval("-5s", "10s")`.
    """
    return Interval(_signed(lower, "interval: lower"), _signed(upper, "interval: upper"))


def _signed(given: Duration, what: str) -> int:
    if isinstance(given, str) and given.strip().startswith("-"):
        return -duration(given.strip()[1:], what=what)
    if not isinstance(given, str) and hasattr(given, "days") and given.days < 0:
        return -duration(-given, what=what)
    return duration(given, what=what)


class IntervalJoin(Computation):
    """Keeps rows of both sides until their last possible partner is in."""

    left: Map[tuple[int, int], Kept] = state()
    right: Map[tuple[int, int], Kept] = state()
    number: int = state(0)
    """Tells rows of one side and time apart."""
    waiting: int = state(0)
    """How many rows are kept: when none is left, the key vanishes."""

    def __init__(self, pairing: Pairing, left_stream: str, within: Interval, how: str) -> None:
        self.pairing = pairing
        self.left_stream = left_stream
        self.lower_us, self.upper_us = within.lower_us, within.upper_us
        self.outer = (how in ("left", "full"), how == "full")
        self.sweep_us = max(1, (within.upper_us - within.lower_us) // SWEEPS)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Pairs a row with the partners that are here, and keeps it for those that may come."""
        pairing, time = self.pairing, record.timestamp
        row = pairing.row(record.value)
        if record.stream == self.left_stream:
            side, own, other = _LEFT, self.left, self.right
            first, last = time + self.lower_us, time + self.upper_us
        else:
            side, own, other = _RIGHT, self.right, self.left
            first, last = time - self.upper_us, time - self.lower_us
        matched = False
        for (partner_time, number), kept in other.range((first,), (last + 1,)):  # type: ignore[arg-type]
            partner = kept.columns()
            pair = (row, partner) if side == _LEFT else (partner, row)
            ctx.produce(pairing(*pair, key=ctx.key), timestamp=max(time, partner_time))
            matched = True
            if not kept.matched:
                kept.matched = True
                if self.outer[1 - side]:
                    ctx.cancel_timer((1 - side, partner_time, number))
        expires = min(last + 1, END)
        if expires <= ctx.watermark:
            # Every partner that can come on time is here already.
            if not matched and self.outer[side]:
                self._alone(side, row, time, ctx)
            return
        number, self.number = self.number, self.number + 1
        self.waiting += 1
        own[time, number] = Kept.of(row, time, matched)
        if self.outer[side] and not matched:
            ctx.set_timer((side, time, number), at=expires, hold=min(time, expires))
        sweep = min(-(-expires // self.sweep_us) * self.sweep_us, END)
        ctx.set_timer(sweep, at=sweep, hold=END)

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        """The watermark has passed somebody's last possible partner."""
        if isinstance(timer.tag, tuple):
            side, time, number = timer.tag
            kept = (self.right if side == _RIGHT else self.left).pop((time, number))
            self.waiting -= 1
            self._alone(side, kept.columns(), time, ctx)
        else:
            self._sweep(self.left, timer.timestamp - self.upper_us)
            self._sweep(self.right, timer.timestamp + self.lower_us)
        if not self.waiting:
            self.number = 0

    def _sweep(self, rows: Map[tuple[int, int], Kept], before: int) -> None:
        for place, _ in list(rows.range(None, (before,))):  # type: ignore[arg-type]
            # Timers of single rows are gone by now: at one instant, their tags sort first.
            del rows[place]
            self.waiting -= 1

    def _alone(self, side: int, row: Any, time: int, ctx: Context) -> None:
        pair: tuple[Any, Any] = (row, None) if side == _LEFT else (None, row)
        ctx.produce(self.pairing(*pair, key=ctx.key), timestamp=time)
