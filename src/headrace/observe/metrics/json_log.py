"""Structured logs: one JSON object per line, for epochs, notices, the end, and Python's own log.

Each has `at` (ISO 8601, UTC), `event`, `pipeline`, and what belongs to the event.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, TextIO

import msgspec

from headrace.model.values.time import show_instant
from headrace.observe.text import json_text
from headrace.plan.listener import Listener
from headrace.plan.progress import CheckpointProgress, EpochProgress, Notice, RunSummary

WARNINGS = ("away", "doubt", "listener")


class JsonLog(Listener):
    """Writes the events of a run as lines of JSON."""

    only_fragments: ClassVar[bool] = True

    def __init__(
        self,
        output: TextIO | None = None,
        clock: Callable[[], float] = time.time,
        pipeline: str = "",
    ) -> None:
        self._output, self._clock = output or sys.stdout, clock
        self._lock = threading.Lock()
        self._pipeline = pipeline

    def write(self, event: str, level: str, **more: Any) -> None:
        """Writes one line."""
        line = {
            "at": show_instant(int(self._clock() * 1e6)),
            "level": level,
            "event": event,
            "pipeline": self._pipeline,
            **more,
        }
        text = json_text(line)
        with self._lock:
            print(text, file=self._output, flush=True)

    def on_epoch(self, progress: EpochProgress) -> None:
        """Writes an epoch."""
        self._pipeline = progress.pipeline
        self.write(
            "epoch",
            "info",
            epoch=progress.epoch,
            records=progress.records,
            records_total=progress.records_total,
            produced=progress.produced,
            seconds=round(progress.seconds, 6),
            phases={
                name: round(getattr(progress.phases, name), 6)
                for name in progress.phases.__struct_fields__
            },
            attempts=progress.attempts,
            watermark=show_instant(progress.watermark),
            state_bytes=progress.state_bytes,
            late=progress.late,
            dead=progress.dead,
            carried=progress.carried,
            backlog=progress.backlog,
            counts=progress.counts,
        )

    def on_checkpoint(self, progress: CheckpointProgress) -> None:
        """Writes that the state of a slot is durable."""
        self.write(
            "checkpoint",
            "info",
            computation=progress.computation,
            slot=progress.slot,
            epoch=progress.epoch,
            bytes=progress.bytes,
        )

    def on_notice(self, notice: Notice) -> None:
        """Writes a notice."""
        self._pipeline = notice.pipeline
        level = "warning" if notice.kind in WARNINGS else "info"
        self.write("notice", level, kind=notice.kind, text=notice.text)

    def on_end(self, summary: RunSummary) -> None:
        """Writes how the run ended."""
        self._pipeline = summary.pipeline
        found = msgspec.to_builtins(summary)
        self.write("end", "info", **{k: v for k, v in found.items() if k != "pipeline"})

    def on_failure(self, error: Exception) -> None:
        """Writes the error of the run."""
        self.write("failure", "error", error=type(error).__name__, text=str(error))

    @contextmanager
    def with_logging(self) -> Iterator[JsonLog]:
        """While inside, what libraries log (warnings; `headrace` from INFO on) is written too."""
        handler = _Handler(self)
        root, own = logging.getLogger(), logging.getLogger("headrace")
        before = own.level
        root.addHandler(handler)
        own.setLevel(logging.INFO)
        try:
            yield self
        finally:
            root.removeHandler(handler)
            own.setLevel(before)


class _Handler(logging.Handler):
    """Writes records of Python's log."""

    def __init__(self, log: JsonLog) -> None:
        super().__init__(logging.NOTSET)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one record."""
        try:
            level = record.levelname.lower()
            more = {}
            if record.exc_info and record.exc_info[1] is not None:
                more = {"error": f"{type(record.exc_info[1]).__name__}: {record.exc_info[1]}"}
            self._log.write("log", level, logger=record.name, text=record.getMessage(), **more)
        except Exception:
            self.handleError(record)
