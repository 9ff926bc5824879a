"""A hook that raised, on its way to the policy that decides what becomes of it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

from headrace.model.record import Record
from headrace.model.values.keys import decode_key
from headrace.model.values.shown import shown


class Failed(Exception):
    """A hook raised; which one, and what."""

    def __init__(self, hook: tuple[Any, ...], record: Record[Any] | None, error: Exception) -> None:
        super().__init__()
        self.hook, self.record, self.error = hook, record, error


def what_failed(failure: Failed) -> str:
    """The record or timer that it failed over, for people."""
    if failure.record is not None:
        return f"record {shown(failure.record.value)} of {failure.record.stream!r}"
    _, clock, at, entry = failure.hook
    return f"{clock} timer {decode_key(entry)!r} at {at}"


def copies_of(values: list[Any]) -> Callable[[], list[Any]]:
    """Gives the values as they are now, as often as asked, whatever hooks do to them."""
    try:
        data = pickle.dumps(values)
    except Exception:  # classes that travelled with the pipeline have no module to be found in
        kept = copy.deepcopy(values)
        return lambda: copy.deepcopy(kept)
    return lambda: list(pickle.loads(data))
