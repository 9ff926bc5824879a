"""A live view of a run in a notebook: one output that is updated in place.

IPython is not a dependency: it is looked for among the modules that are loaded already. `Pipeline`
uses the view by itself where a run in a notebook is given no listener.
"""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable
from typing import Any

from headrace.plan.listener import Listener
from headrace.plan.options import RunOptions
from headrace.plan.progress import EpochProgress, Notice, RunSummary

UPDATE_EVERY_S = 0.5
NOTICES_SHOWN = 5

Display = Callable[..., Any]
"""`IPython.display.display`: shows data, and returns a handle that can update it."""


class NotebookView(Listener):
    """Shows a run in the output of a cell."""

    def __init__(self, display: Display, clock: Callable[[], float] = time.monotonic) -> None:
        self._display, self._clock = display, clock
        self._began = clock()
        self._next = self._began
        self._handle: Any = None
        self._notices: list[str] = []
        self._last: EpochProgress | None = None
        # At once, and so below the cell that starts the run: a run in the background would show
        # its first epoch below whichever cell runs by then.
        self._show(["starting ..."])
        self._next = self._began

    def on_epoch(self, progress: EpochProgress) -> None:
        """Shows an epoch, at most twice a second; the end shows the last one."""
        self._last = progress
        if self._clock() >= self._next:
            self._show(self._lines())

    def on_notice(self, notice: Notice) -> None:
        """Shows what happened between epochs."""
        self._notices = [*self._notices, notice.text][-NOTICES_SHOWN:]
        self._show(self._lines())

    def on_end(self, summary: RunSummary) -> None:
        """Shows how the run ended."""
        self._show([*self._lines(), *summary.lines(f", {self._clock() - self._began:,.1f} s")])

    def on_failure(self, error: Exception) -> None:
        """Shows that the run has failed; the cell shows the error itself."""
        self._show([*self._lines(), f"failed: {type(error).__name__}"])

    def _lines(self) -> list[str]:
        lines = []
        if (last := self._last) is not None:
            rate = last.records_total / max(self._clock() - self._began, 1e-9)
            lines.append(
                f"{last.pipeline}: epoch {last.epoch:,} | {last.records_total:,} records, "
                f"{rate:,.0f}/s | late {last.late:,} | dead {last.dead:,}"
            )
        return lines + self._notices

    def _show(self, lines: list[str]) -> None:
        self._next = self._clock() + UPDATE_EVERY_S
        text = "\n".join(lines)
        data = {"text/plain": text, "text/html": f"<pre>{html.escape(text)}</pre>"}
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


def notebook_view() -> NotebookView | None:
    """The view of the notebook that runs this code; None elsewhere."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or getattr(shell, "kernel", None) is None:
        return None  # plain Python, or IPython in a terminal
    display = sys.modules.get("IPython.display")
    return None if display is None else NotebookView(display.display)


def with_notebook_view(options: RunOptions) -> RunOptions:
    """The options of a run; in a notebook with the view, unless they name listeners."""
    named = {"listeners", "on_epoch", "on_notice"} & set(options)
    view = None if named else notebook_view()
    return options if view is None else {**options, "listeners": [view]}
