"""Reads a state store from outside, as of one moment (O8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headrace.errors import StoreError
from headrace.state.backend import StateView
from headrace.state.backends.applied_view import AppliedView

TRIES_MAX = 20

_Given = TypeVar("_Given")


def at_one_moment(
    view_now: Callable[[], StateView],
    read: Callable[[StateView], _Given],
    what: str,
    tries_max: int = TRIES_MAX,
) -> _Given:
    """What `read` returns: all of it is the state of the epoch that its view shows.

    `view_now` gives a view of the newest epoch. If a cell of a later one was read, it is not that
    moment. If the floor has passed the epoch, a key that was deleted since looks as if it had never
    been. If the store restarted, it may have been put back. Then all is read once more, from a new
    view.
    """
    for _ in range(tries_max):
        view = view_now()
        found = read(view)
        if not isinstance(view, AppliedView) or view.is_moment():
            return found
    raise StoreError(
        f"{what} could not be read as of one epoch in {tries_max} tries, because epochs were "
        "applied to the state store meanwhile: read fewer keys at once, or pause the pipeline"
    )
