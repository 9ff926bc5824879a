"""A driver as `headrace run` starts one: the engine's own loop, with a lease and retries.

It may be a standby, which observes the lease before it leads. A process that is stopped (SIGSTOP)
stops with all its threads; one that hangs continues to renew its lease for a while.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from headrace.engine.driver.follower import Follower
from headrace.engine.leading import loop
from headrace.errors import EpochFailed, IncompatibleState, SinkError, StoreError
from headrace.plan.listener import NoticeCallback
from headrace.plan.options import Options
from headrace.plan.progress import Notice
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.drivers.life import Life
from headrace.testing.simulator.drivers.scene import Scene
from headrace.testing.simulator.machine.threads import SimulatedEvent

if TYPE_CHECKING:
    from threading import Event

STUCK_S = 20.0
STARVED_S = STUCK_S / 4
"""A loop that gets no turn for so long, because others have theirs, will seem to be stuck."""
_HICCUPS = 7
"""After this many waits in a row an outage must be announced, and retries be less frequent."""
_SLACK_S = 60.0
"""How much later than its limit it may give up: its last wait, and other drivers' turns."""


class _Stopping(SimulatedEvent):
    """Is never set; it gives other processes their turns between two steps."""

    def __init__(self, life: ConductedLife, scene: Scene) -> None:
        super().__init__(lambda: life, scene.uptime_s)
        self._life = life

    def is_set(self) -> bool:
        self._life.between_steps()
        return super().is_set()

    def wait(self, timeout: float) -> bool:
        self._life.waits(timeout)
        return super().wait(timeout)


class ConductedLife(Life):
    """A driver in its loop."""

    def __init__(
        self, scene: Scene, number: int, *, standby: bool = False, supervised: bool = False
    ) -> None:
        super().__init__(scene, number)
        chance = scene.chance
        self.standby = standby
        self._supervised = supervised
        self.lease_s = scene.lease_s
        self.give_up_s = None if chance.random.random() < 0.7 else chance.random.uniform(20, 60)
        self.unwell_at = float("-inf")
        """When something last kept it from renewing its lease."""
        self._slow_threads = 0
        """How many of its threads wait for a slow answer."""
        self._refused_since: float | None = None
        self._refused_at = -1.0
        self._waits = 0
        self._progress = (0, 0)
        self._progress_at = 0.0
        self._led = False
        self.began_to_lead = 0.0
        self.woke_at = 0.0
        """When it was last woken."""
        self._notices: list[tuple[float, str, str]] = []
        self._control = loop.RunControl(cast("Event", _Stopping(self, scene)))
        self.reason = ""

    @property
    def leads(self) -> bool:
        """Whether it has opened, and makes steps."""
        return self._control.phase in ("running", "paused")

    @property
    def watches(self) -> bool:
        """Whether it is a standby that has not yet decided to take over."""
        decided = any("taking over" in text for _, _, text in self._notices)
        return self.standby and not decided

    def _options(self, slots: int | None) -> Options:
        return msgspec.structs.replace(
            super()._options(slots),
            give_up_s=self.give_up_s,
            lease_s=self.lease_s,
            stuck_s=STUCK_S,
            standby=self.standby,
            supervised=self._supervised,
            listeners=(NoticeCallback(self._hear),),
        )

    def _lead(self, follower: Follower) -> None:
        summary = loop.run_loop(follower, self._control)
        self.reason = summary.reason
        self.finished = summary.reason not in ("stopped", "not_needed")

    def _hear(self, notice: Notice) -> None:
        self._notices.append((self._scene.uptime_s(), notice.kind, notice.text))
        if notice.kind == "back":
            self._refused_since = None
        elif notice.kind == "away":
            self._waits = 0  # this may be a second outage in a row, with quick retries of its own
        self._scene.chance.note(f"driver {self.number} says: {notice.text[:120]}")
        if "; taking over" in notice.text and self._scene.chance.random.random() < 0.4:
            self.pause()  # other standbys may decide the same meanwhile

    def pause(self) -> None:
        is_loop = self.current is self.fiber
        due = max(self._scene.uptime_s(), self.fiber.wakes_at)
        super().pause()
        if is_loop and self._scene.uptime_s() - due > STARVED_S:
            self.unwell_at = self._scene.uptime_s()

    def wake(self, uptime_s: float) -> None:
        super().wake(uptime_s)
        self.woke_at = self.unwell_at = uptime_s

    def between_steps(self) -> None:
        """The loop begins its next step."""
        driver = self.follower.driver if self.follower is not None else None
        if self.leads and driver is not None:
            if not self._led:
                self._led, self.began_to_lead = True, self._scene.uptime_s()
            self.fiber.wakes_at = 0.0
            self.pause()
            self._change_ring(driver)
            self._limit_slots(driver)

    def slowed(self, seconds: float) -> None:
        self._slow_threads += 1
        super().slowed(seconds)
        self._slow_threads -= 1
        self.unwell_at = self._scene.uptime_s()

    @property
    def last_unwell(self) -> float:
        """When something last kept it from renewing its lease; infinite where that lasts."""
        return float("inf") if self._slow_threads else self.unwell_at

    # Notices of outages, and when it gives up -----------------------------

    def refused(self) -> None:
        """This driver was refused by an outage."""
        now = self._scene.uptime_s()
        self.unwell_at = now
        if not self.leads or self.current is not self.fiber:
            return
        self._refused_at = now
        if self._refused_since is None:
            self._refused_since, self._waits = now, 0
        if (progress := self._scene.progress()) != self._progress:
            self._progress, self._progress_at, self._waits = progress, now, 0
        announced = any(
            kind == "away" and at >= self._refused_since for at, kind, _ in self._notices
        )
        if self._waits > _HICCUPS and not announced:
            raise Violation(f"driver {self.number} waits for an outage and does not announce it")
        away_s = now - max(self._refused_since, self._progress_at, self.woke_at)
        if self.give_up_s is not None and away_s > self.give_up_s + _SLACK_S:
            raise Violation(
                f"driver {self.number} was to give up after {self.give_up_s:.0f} s, and still "
                f"tries after {away_s:.0f} s"
            )

    def waits(self, seconds: float) -> None:
        """It waits, perhaps during an outage: then a call was refused just now."""
        now = self._scene.uptime_s()
        if self._refused_at != now:
            self._refused_since = None
        elif self._refused_since is None:
            self._refused_since = now  # refused again just when it reported the end of the outage
        self._waits = self._waits + 1 if self._refused_since is not None else 0
        if self._waits > _HICCUPS and self.give_up_s is None and seconds < 1.0:
            raise Violation(f"driver {self.number} retries every {seconds:.2f} s without backoff")

    def _excused(self, error: BaseException) -> bool:
        """A run that retries does not end because of an outage; a standby has the leader's code."""
        if isinstance(error, IncompatibleState) and self.standby and not self._led:
            code = self.follower.setup.fingerprint if self.follower is not None else ""
            return self._scene.log.code not in ("", code)
        if not self._led or isinstance(error, EpochFailed):
            return super()._excused(error)
        if not isinstance(error, SinkError | StoreError) or self.give_up_s is None:
            return False
        # The driver may have started to count before the last refusal that was seen here, but
        # not before the outage began.
        since = self._scene.outages.since_s
        if self._refused_since is not None:
            since = min(since, self._refused_since)
        waited = self._scene.uptime_s() - since
        if waited < self.give_up_s - 1.0:
            raise Violation(
                f"driver {self.number} was to wait {self.give_up_s:.0f} s and gave up after "
                f"{waited:.0f} s: {error}"
            )
        return True
