"""Listeners of a run: any number of them, and all get the same events in the same order.

1. `on_notice`, `on_epoch` and `on_checkpoint`, in the order of events, from the thread of the run;
2. at the end either `on_end` or `on_failure`, once.

A listener cannot harm the run: if it raises, the error is logged, the other listeners get a notice
of it, and the run continues. It can delay the run, which waits until the listener returns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import ClassVar

from headrace.plan.progress import CheckpointProgress, EpochProgress, Notice, RunSummary

_logger = logging.getLogger("headrace.run")

_WARNINGS = ("away", "doubt", "listener")
"""Kinds of notices that are logged as warnings if no listener takes notices."""


class Listener:
    """Base class for objects that follow a run; override the methods that you need."""

    only_fragments: ClassVar[bool] = False
    """Whether `on_checkpoint` is only called for fragments, and not for changes that are durable
    with their commit: these may be one for each slot in each epoch."""

    def on_epoch(self, progress: EpochProgress) -> None:
        """An epoch is committed and delivered."""

    def on_checkpoint(self, progress: CheckpointProgress) -> None:
        """The state of a slot that has changed is durable: with each commit, or, where
        `checkpoint_every=` is more than 1, with the checkpoint that has its fragment."""

    def on_notice(self, notice: Notice) -> None:
        """Something happened between epochs, such as an outage."""

    def on_end(self, summary: RunSummary) -> None:
        """The run has ended normally, or was stopped."""

    def on_failure(self, error: Exception) -> None:
        """The run has ended with an error."""


class EpochCallback(Listener):
    """A function that is called with every epoch: `on_epoch=`."""

    def __init__(self, call: Callable[[EpochProgress], None]) -> None:
        self._call = call

    def on_epoch(self, progress: EpochProgress) -> None:
        """Calls the function."""
        self._call(progress)


class NoticeCallback(Listener):
    """A function that is called with every notice: `on_notice=`."""

    def __init__(self, call: Callable[[Notice], None]) -> None:
        self._call = call

    def on_notice(self, notice: Notice) -> None:
        """Calls the function."""
        self._call(notice)


class Listeners:
    """All listeners of one run."""

    def __init__(self, pipeline: str, listeners: Sequence[Listener] = ()) -> None:
        self.pipeline = pipeline
        self._listeners = tuple(listeners)
        self._take_notices = any(type(x).on_notice is not Listener.on_notice for x in listeners)
        self.take_commits = any(map(_takes_commits, listeners))
        """Whether any of them wants to know which slots a commit has made durable."""
        self._reported: set[tuple[int, str]] = set()
        """(number of a listener, method) whose failure was reported; each is reported once."""
        self.board: Listener | None = None
        """Gets epochs, notices and the end first. It shows nothing: notices are logged anyway."""

    def __bool__(self) -> bool:
        return bool(self._listeners) or self.board is not None

    def epoch(self, progress: EpochProgress) -> None:
        """Reports that an epoch is committed and delivered."""
        self._each("on_epoch", lambda listener: listener.on_epoch(progress))

    def checkpoint(self, progress: CheckpointProgress) -> None:
        """Reports that the state of a slot is durable with a fragment."""
        self._each("on_checkpoint", lambda listener: listener.on_checkpoint(progress))

    def committed(self, progress: CheckpointProgress) -> None:
        """Reports that the state of a slot is durable with its commit."""
        self._each(
            "on_checkpoint",
            lambda listener: None if listener.only_fragments else listener.on_checkpoint(progress),
        )

    def notice(self, kind: str, text: str) -> None:
        """Reports an event between epochs. It is logged if no listener takes notices."""
        notice = Notice(self.pipeline, kind, text)
        self._each("on_notice", lambda listener: listener.on_notice(notice))
        if not self._take_notices:
            self._log(notice)

    def end(self, summary: RunSummary) -> None:
        """Reports the end of the run."""
        self._each("on_end", lambda listener: listener.on_end(summary))

    def failure(self, error: Exception) -> None:
        """Reports the failure of the run."""
        self._each("on_failure", lambda listener: listener.on_failure(error))

    def _each(self, method: str, call: Callable[[Listener], None]) -> None:
        failed: list[tuple[int, Exception]] = []
        if self.board is not None:
            try:
                call(self.board)
            except Exception as error:
                _logger.debug("the status board raised in %s: %s", method, error)
        for place, listener in enumerate(self._listeners):
            try:
                call(listener)
            except Exception as error:
                failed.append((place, error))
        for place, raised in failed:  # afterwards, so that all listeners get the event first
            if (place, method) not in self._reported:
                self._reported.add((place, method))
                self._report(place, method, raised)

    def _report(self, place: int, method: str, error: Exception) -> None:
        name = type(self._listeners[place]).__name__
        text = (
            f"listener {name} raised in {method}: {type(error).__name__}: {error}. The run goes "
            "on; further errors of it there are not reported"
        )
        notice = Notice(self.pipeline, "listener", text)
        self._log(notice, error)
        for other, listener in enumerate(self._listeners):
            if other == place:
                continue
            try:
                listener.on_notice(notice)
            except Exception as again:
                _logger.debug("a listener raised in on_notice: %s", again)

    def _log(self, notice: Notice, error: Exception | None = None) -> None:
        level = logging.WARNING if notice.kind in _WARNINGS else logging.INFO
        _logger.log(level, "%s: %s", self.pipeline, notice.text, exc_info=error)


def _takes_commits(listener: Listener) -> bool:
    hears = type(listener).on_checkpoint is not Listener.on_checkpoint
    return hears and not listener.only_fragments
