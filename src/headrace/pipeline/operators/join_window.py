"""The window join: rows of one key pair up if they fall into the same window.

Joined rows are stamped `window_end - 1`, as all rows of windows are. Pairs come
out at once; what found no partner comes out, for an outer side, when the window
closes: when the watermark passes its end and the grace.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import InvalidPipeline, InvalidRecord
from headrace.model.computation import Computation
from headrace.model.map import Map
from headrace.model.state import state
from headrace.model.time import END
from headrace.pipeline.columns import as_columns
from headrace.pipeline.operators.join_rows import Kept, Pairing
from headrace.pipeline.windows import Window

if TYPE_CHECKING:
    from headrace.model.context import Context
    from headrace.model.record import Record, Timer

WINDOW_COLUMNS = ("window_start", "window_end")
_LEFT, _RIGHT = 0, 1


class Windows(Protocol):
    """Says into which windows a record falls."""

    def windows(self, timestamp: int, value: Any) -> Sequence[tuple[int, int]]:
        """(start, end) of each window."""


class CutWindows:
    """Windows that are cut by the clock, or that the rows carry."""

    def __init__(self, window: Window) -> None:
        if window.kind not in ("tumbling", "hopping", "same"):
            raise InvalidPipeline(
                f"a window join takes tumbling(), hopping() or same_window(), not {window.kind}"
            )
        self.kind, self.size_us = window.kind, window.size_us
        self.every_us = window.every_us or window.size_us

    def windows(self, timestamp: int, value: Any) -> Sequence[tuple[int, int]]:
        """(start, end) of each window."""
        if self.kind == "same":
            row = as_columns(value, where="same_window()")
            try:
                return [(row["window_start"], row["window_end"])]
            except KeyError:
                raise InvalidRecord(
                    "same_window(): there are no columns window_start and window_end; "
                    f"there are: {', '.join(row)}"
                ) from None
        last = timestamp // self.every_us * self.every_us
        starts = range(last, timestamp - self.size_us, -self.every_us)
        return [(start, start + self.size_us) for start in starts]


class WindowJoin(Computation):
    """Keeps the rows of open windows."""

    rows: Map[tuple[int, ...], Kept] = state()
    """(start, end, side, number) -> row."""
    counts: Map[tuple[int, int], list[int]] = state()
    """(start, end) -> rows of either side."""

    def __init__(
        self,
        pairing: Pairing,
        left_stream: str,
        windows: Windows,
        how: str,
        grace_us: int,
        late_port: str | None,
    ) -> None:
        self.pairing = pairing
        self.left_stream = left_stream
        self.windows = windows
        self.outer = (how in ("left", "full"), how == "full")
        self.grace_us = grace_us
        self.late_port = late_port
        self.port = None if late_port is None else "joined"

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Pairs a row within each of its windows that is still open."""
        windows = self.windows.windows(record.timestamp, record.value)
        if record.late:
            windows = [w for w in windows if w[1] + self.grace_us > ctx.watermark]
            if not windows:
                ctx.count("late")
                if self.late_port is not None:
                    ctx.produce(record.value, to=self.late_port)
                return
        row = self.pairing.row(record.value)
        side = _LEFT if record.stream == self.left_stream else _RIGHT
        for window in windows:
            self._add(window, side, row, record.timestamp, ctx)

    def _add(
        self, window: tuple[int, int], side: int, row: Any, timestamp: int, ctx: Context
    ) -> None:
        start, end = window
        other = 1 - side
        for _, kept in self.rows.range((start, end, other), (start, end, other + 1)):
            partner = kept.columns()
            self._produce(window, (row, partner) if side == _LEFT else (partner, row), ctx)
        counts = self.counts.setdefault(window, [0, 0])
        self.rows[start, end, side, counts[side]] = Kept.of(row, timestamp)
        counts[side] += 1
        ctx.set_timer(window, at=min(end + self.grace_us, END), hold=end - 1)

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        """A window closes."""
        start, end = timer.tag
        counts = self.counts.pop((start, end))
        alone = [self.outer[side] and not counts[1 - side] for side in (_LEFT, _RIGHT)]
        for place, kept in list(self.rows.range((start, end), (start, end, 2))):
            side = place[2]
            if alone[side]:
                row = kept.columns()
                pair = (row, None) if side == _LEFT else (None, row)
                self._produce((start, end), pair, ctx)
            del self.rows[place]

    def _produce(self, window: tuple[int, int], pair: tuple[Any, Any], ctx: Context) -> None:
        start, end = window
        joined = self.pairing(*pair, key=ctx.key)
        if isinstance(joined, dict):
            joined = {**joined, "window_start": start, "window_end": end}
        ctx.produce(joined, to=self.port, timestamp=end - 1)
