"""A live view of a run: a listener.

On a terminal it is a small table that stays in place. Elsewhere (a log, a pipe) it is plain lines,
about one per second, always including the last epoch.

    with terminal_view() as view:
        pipeline.run(checkpoint=..., listeners=[view])
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table

from headrace.observe.text import (
    show_bytes,
    show_lag,
    show_rate,
    show_span,
    show_time,
    show_use,
)
from headrace.plan.listener import Listener
from headrace.plan.progress import EpochProgress, Notice, RunSummary

Clock = Callable[[], float]

LINE_EVERY_S = 1.0
RATE_OVER_S = 5.0


class ProgressView(Listener, ABC):
    """Shows a run while it runs. A context manager: leaving it ends the live part."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._started = clock()
        self._rate = RecentRate(self._started)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def on_epoch(self, progress: EpochProgress) -> None:
        """Shows a committed epoch."""
        now = self._clock()
        self._rate.add(now, progress.records)
        self._show(progress, now)

    def on_notice(self, notice: Notice) -> None:
        """Shows what happened between epochs: an outage, a message of a standby."""
        self.say(f"{notice.pipeline}: {notice.text}")

    def on_end(self, summary: RunSummary) -> None:
        """Ends the live part and shows how the run ended."""
        self.close()
        for line in summary_lines(summary, self._clock() - self._started):
            self.say(line)

    @abstractmethod
    def say(self, line: str) -> None:
        """Prints a line that stays, above the live part if there is one."""

    @abstractmethod
    def close(self) -> None:
        """Shows what was not shown yet, and ends the live part."""

    @abstractmethod
    def _show(self, progress: EpochProgress, now: float) -> None:
        """Shows an epoch, at once or a little later."""


class PlainView(ProgressView):
    """One line per epoch, at most about one per second, and always the last epoch."""

    def __init__(self, output: TextIO | None = None, clock: Clock = time.monotonic) -> None:
        super().__init__(clock)
        self._output = output or sys.stdout
        self._next_line = self._started
        self._waiting: EpochProgress | None = None

    def say(self, line: str) -> None:
        """Prints a line."""
        print(line, file=self._output, flush=True)

    def close(self) -> None:
        """Prints the last epoch if it was not printed yet."""
        if self._waiting is not None:
            self.say(progress_line(self._waiting, self._rate))
            self._waiting = None

    def _show(self, progress: EpochProgress, now: float) -> None:
        self._waiting = progress
        if now >= self._next_line:
            self.close()
            self._next_line = now + LINE_EVERY_S


class LiveView(ProgressView):
    """A table that stays in place on a terminal."""

    def __init__(self, console: Console, clock: Clock = time.monotonic) -> None:
        super().__init__(clock)
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._last: EpochProgress | None = None

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def say(self, line: str) -> None:
        """Prints a line above the table."""
        self._console.print(line, markup=False, highlight=False)

    def close(self) -> None:
        """Removes the table; the last epoch stays as a line."""
        if not self._live.is_started:
            return
        self._live.stop()
        if self._last is not None:
            self.say(progress_line(self._last, self._rate))

    def _show(self, progress: EpochProgress, now: float) -> None:
        self._last = progress
        self._live.update(self._table(progress, now), refresh=True)

    def _table(self, progress: EpochProgress, now: float) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", justify="right")
        table.add_column()
        took = f"{progress.seconds * 1_000:,.0f} ms"
        table.add_row("epoch", f"{progress.epoch:,}  [dim]{took}[/dim]")
        total = f"{progress.records_total:,} in {show_span(round((now - self._started) * 1e6))}"
        table.add_row("records", f"{self._rate}  [dim]{total}[/dim]")
        lag = show_lag(progress.watermark, progress.newest)
        table.add_row("watermark", f"{show_time(progress.watermark)}  [dim]{lag}[/dim]")
        table.add_row("state", show_bytes(progress.state_bytes))
        table.add_row("late, dead", f"{progress.late:,}, {progress.dead:,}")
        if overload := show_overload(progress):
            table.add_row("overload", overload.replace(" | ", ", "))
        if progress.store.asked:
            table.add_row("requests", show_use(progress.store))
        return table


class RecentRate:
    """Records per second over the last few seconds."""

    def __init__(self, started: float) -> None:
        self._points: deque[tuple[float, int]] = deque([(started, 0)])

    def add(self, now: float, records: int) -> None:
        """Adds an epoch that has just ended."""
        self._points.append((now, records))
        while len(self._points) > 2 and self._points[1][0] <= now - RATE_OVER_S:
            self._points.popleft()

    def __str__(self) -> str:
        records = sum(count for _, count in list(self._points)[1:])
        return show_rate(records, self._points[-1][0] - self._points[0][0])


def terminal_view(output: TextIO | None = None) -> ProgressView:
    """The view that fits the output: a table on a terminal, otherwise lines."""
    output = output or sys.stdout
    console = Console(file=output)
    return LiveView(console) if console.is_terminal else PlainView(output)


def progress_line(progress: EpochProgress, rate: RecentRate) -> str:
    """The progress after an epoch as one line."""
    lag = show_lag(progress.watermark, progress.newest)
    parts = [
        f"epoch {progress.epoch:,}",
        f"{progress.records_total:,} records",
        f"{rate}",
        f"watermark {show_time(progress.watermark)}{f' ({lag})' if lag else ''}",
        f"state {show_bytes(progress.state_bytes)}",
        f"late {progress.late:,}",
        f"dead {progress.dead:,}",
    ]
    if overload := show_overload(progress):
        parts.append(overload)
    return " | ".join(parts)


def show_overload(progress: EpochProgress) -> str:
    """Records of overloaded slots: how many wait, and how many were dropped."""
    dropped = sum(progress.shed.values())
    shown = [f"carried {progress.carried:,}"] if progress.carried else []
    return " | ".join(shown + ([f"shed {dropped:,}"] if dropped else []))


def summary_lines(summary: RunSummary, seconds: float) -> list[str]:
    """How a run ended, in a few lines."""
    span, rate = show_span(round(seconds * 1e6)), show_rate(summary.records, seconds)
    return summary.lines(f", {span}, {rate}")
