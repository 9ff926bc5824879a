"""A hook that raised, on its way to the policy that decides what becomes of it."""

from __future__ import annotations

from typing import Any

from headrace.model.keys import decode_key
from headrace.model.record import Record


class Failed(Exception):
    """A hook raised; which one, and what."""

    def __init__(self, hook: tuple[Any, ...], record: Record[Any] | None, error: Exception) -> None:
        super().__init__()
        self.hook, self.record, self.error = hook, record, error


def what_failed(failure: Failed) -> str:
    """The record or timer that it failed over, for people."""
    if failure.record is not None:
        return f"record {failure.record.value!r:.200} of {failure.record.stream!r}"
    _, clock, at, entry = failure.hook
    return f"{clock} timer {decode_key(entry)!r} at {at}"
