"""Named places in the code where tests can cause a crash.

`reach(name)` costs one dictionary look-up when nothing is armed. Tests arm a name in this process
(`arm`), or for a child process through the environment: `HEADRACE_FAILPOINT=before-commit-write:3`
kills the process the third time it reaches that place.

`NAMES` lists the names in the order in which an epoch reaches them, and then those of requests; a
test checks that the code reaches each of them and no others.
"""

from __future__ import annotations

import os
from collections.abc import Callable

NAMES = (
    "before-takeover",
    "after-takeover",
    "before-handover-write",
    "after-handover-write",
    "before-confirm-write",
    "before-ring-write",
    "after-ring-write",
    "before-plan-write",
    "after-plan-write",
    "before-job",
    "after-merge-copy",
    "after-intent-write",
    "after-call",
    "after-result-write",
    "before-segment-write",
    "after-segment-write",
    "after-job",
    "after-record-write",
    "before-commit-write",
    "after-commit-write",
    "before-delivery",
    "before-claim",
    "after-claim",
    "after-publish",
    "after-high-water",
    "after-merge-write",
    "after-cells-write",
    "after-store-mark",
    "after-store-sync",
    "after-purge",
    "before-collect",
    "after-collect",
    "before-control-write",
    "after-control-write",
    "after-answer-write",
    "after-fragment-write",
    "before-checkpoint-write",
    "after-checkpoint-write",
    "before-repair",
)

ASKED = (
    "before-handover-write",
    "after-handover-write",
    "before-confirm-write",
    "before-control-write",
    "after-control-write",
    "after-answer-write",
    "after-fragment-write",
    "before-checkpoint-write",
    "after-checkpoint-write",
    "before-repair",
)
"""Those that a driver reaches only where something was asked, or with an interval."""

OF_STATE_STORES = ("after-cells-write", "after-store-mark", "after-store-sync", "after-purge")
"""Those that a driver reaches only with a state store."""

_armed: dict[str, Callable[[], None]] = {}


def reach(name: str) -> None:
    """Marks a place where the process may die."""
    if _armed and (action := _armed.get(name)) is not None:
        action()


def arm(name: str, action: Callable[[], None]) -> None:
    """Runs `action` from now on whenever `name` is reached."""
    if name not in NAMES:
        raise ValueError(f"unknown failpoint {name!r}; known are {', '.join(NAMES)}")
    _armed[name] = action


def disarm(name: str | None = None) -> None:
    """Removes the action armed for `name`, or all actions."""
    if name is None:
        _armed.clear()
    else:
        _armed.pop(name, None)


def arm_from_environment() -> None:
    """Arms `HEADRACE_FAILPOINT=name[:n]`: the n-th arrival kills this process."""
    setting = os.environ.get("HEADRACE_FAILPOINT")
    if not setting:
        return
    name, _, nth = setting.partition(":")
    remaining = int(nth or 1)

    def die() -> None:
        nonlocal remaining
        remaining -= 1
        if remaining <= 0:
            os._exit(137)

    arm(name, die)
