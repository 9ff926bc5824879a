"""How often a run with nothing to do looks for new input.

Soon after an epoch it looks often: input that comes often should not wait for a look. The longer
nothing comes, the less often it looks, because every look costs requests to sources and stores.
"""

from __future__ import annotations

POLL_S = 0.2
"""How often sources are asked for new input when there has been nothing to do for a while."""
POLL_FIRST_S, POLL_SHARE = 0.005, 0.25


class Polling:
    """Remembers when there was something to do."""

    def __init__(self) -> None:
        self._busy_s = float("-inf")

    def busy(self, now_s: float) -> None:
        """There was something to do."""
        self._busy_s = now_s

    def pause_s(self, now_s: float, until_s: float | None = None) -> float:
        """How long to wait before the next look; a timer that is due in `until_s` ends it."""
        pause = pause_s(now_s - self._busy_s)
        return pause if until_s is None else min(pause, max(0.001, until_s))


def pause_s(idle_s: float) -> float:
    """How long to wait before the next look for input, after so much time without any."""
    return min(POLL_S, max(POLL_FIRST_S, POLL_SHARE * idle_s))
