"""Retry with backoff while something outside is unavailable: announce the outage, wait, continue.

1. First a few retries in quick succession, silently. Short failures that follow each other, with
   no undisturbed step in between, share these retries: a run that waits for one thing after another
   announces that as well.
2. Then the outage is announced once: which part, since when, the error.
3. Then retries with growing intervals, up to half a minute, until the outage is over, until the
   run is asked to stop, or until `give_up_s` has passed.

A caller that waits keeps its work: a plan stays open and runs again as it is, and an entry of the
log is put again with the same nonce (protocol A2), however long it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headrace.errors import Fenced, HeadraceError, SparkError
from headrace.model.values.shown import encodable
from headrace.model.values.time import show_instant
from headrace.plan.decisions.transient import (
    HICCUP_S,
    QUICK_TRIES,
    Outage,
    delay_s,
    is_outage,
    part_of,
)
from headrace.system import REAL, Event, System

_Given = TypeVar("_Given")

Tell = Callable[[str, str], None]
"""Takes the kind of a notice and its text."""


class StopAsked(Exception):
    """The run was asked to stop while it waited."""


class Retry:
    """Retries while a part outside is unavailable: for ever, or as long as `give_up_s` says."""

    def __init__(
        self,
        give_up_s: float | None,
        stopping: Event,
        tell: Tell = lambda kind, text: None,
        *,
        resting: Callable[[bool], None] = lambda waits: None,
        check: Callable[[], None] = lambda: None,
        system: System = REAL,
    ) -> None:
        """`check` raises if waiting is pointless: Fenced by a newer driver, or SparkError."""
        self.outage: Outage | None = None
        """The current outage, once it lasts longer than a few quick retries."""
        self._check = check
        self._give_up_s = give_up_s
        self._stopping = stopping
        self._tell = tell
        self._resting = resting
        self._system = system
        self._tries = 0
        self._began = 0.0
        self._began_wall = 0.0
        self._unsaid = 0
        """Retries of short failures before this outage that were never announced."""
        self._unsaid_s = 0.0
        self._undisturbed = True
        """Whether no wait was needed since the last step."""

    def through(self, act: Callable[[], _Given]) -> _Given:
        """The result of `act`, retried for as long as an outage prevents it."""
        waited = False
        while True:
            try:
                given = act()
            except Exception as error:
                if not is_outage(error):
                    raise
                waited = True
                self.wait(error)
            else:
                if waited:
                    self.over()
                return given

    def wait(self, error: Exception) -> None:
        """Returns when it is time to retry; raises when it is time to give up."""
        now = self._system.uptime_s()
        if self._tries == 0:
            self._began, self._began_wall = now, self._system.wall_s()
        self._tries += 1
        self._undisturbed = False
        away_s = now - self._began
        if self._give_up_s is not None and away_s >= self._give_up_s:
            raise _given_up(error, away_s)
        tries, silent_s = self._unsaid + self._tries, self._unsaid_s + away_s
        if tries > QUICK_TRIES or silent_s >= HICCUP_S:
            self._announce(error)
        pause = delay_s(self._tries, self._system.random(), self._system.limits)
        if self._give_up_s is not None:
            pause = min(pause, self._give_up_s - away_s)
        self._resting(True)
        try:
            if self._stopping.wait(pause):
                raise StopAsked
        finally:
            self._resting(False)
        try:
            self._check()
        except (Fenced, SparkError):
            raise
        except (OSError, HeadraceError):
            pass  # The log is unavailable as well: its own puts will report that.

    def over(self) -> None:
        """Ends the wait: what was waited for has succeeded."""
        away = self._system.uptime_s() - self._began if self._tries else 0.0
        if self.outage is not None:
            self._tell("back", f"the {self.outage.part} is back after {away:,.0f} s; going on")
            self._forget()
        else:
            self._unsaid += self._tries
            self._unsaid_s += away
        self.outage = None
        self._tries = 0

    def stepped(self) -> None:
        """Notes a step: after an undisturbed step, the next short failure counts on its own."""
        if self._undisturbed:
            self._forget()
        self._undisturbed = True

    def _forget(self) -> None:
        self._unsaid, self._unsaid_s = 0, 0.0

    def _announce(self, error: Exception) -> None:
        part, said = part_of(error), encodable(str(error))
        new = self.outage is None or self.outage.part != part
        self.outage = Outage(part, self._began_wall, said, self._tries)
        if new:
            since = show_instant(int(self._began_wall) * 1_000_000)
            self._tell(
                "away",
                f"paused: the {part} has been unavailable since {since} ({said[:500]}). Nothing is "
                "lost; the run retries until it is back",
            )


def _given_up(error: Exception, away_s: float) -> Exception:
    if error.__cause__ is not None and str(error).startswith(f"{error.__cause__} (given up"):
        return error  # already given up by an inner wait
    if isinstance(error, HeadraceError) and away_s > 0:
        told = type(error)(f"{error} (given up after {away_s:,.0f} s)")
        told.__cause__ = error
        return told
    return error
