"""Surroundings for tests: clocks that a test turns, waits that take no time, disks that fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.limits import Limits
from headrace.system import Filesystem, System


class Hurried(System):
    """Nobody waits."""

    def sleep(self, seconds: float) -> None:
        """Returns at once."""


class Stopwatch(System):
    """Time passes only while somebody sleeps, or when a test moves it on."""

    def __init__(self, now_s: float = 0.0) -> None:
        super().__init__()
        self.now_s = now_s

    def wall_s(self) -> float:
        return self.now_s

    def uptime_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def with_files(**calls: Callable[..., Any]) -> System:
    """This machine, but for some calls on files: `with_files(fsync=full)`."""
    files = Filesystem()
    for name, call in calls.items():
        if not hasattr(files, name):
            raise AttributeError(f"Filesystem has no call {name!r}")
        setattr(files, name, call)
    return System(files)


def limited(**limits: Any) -> System:
    """This machine with other limits: `limited(collect_every_epochs=1)`."""
    return System(limits=Limits(**limits))


FILES = limited(ride_bytes_max=0)
"""This machine, where nothing rides in commits: each delta is a file, however small."""
