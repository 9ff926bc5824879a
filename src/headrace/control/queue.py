"""The queue of requests: `control/<position>`, each put once at the next position (I1).

- A requester lists to find the end and puts at the next position. Of several that put there, one
  succeeds; the others go on to the next.
- A leader reads at its cursor + 1: one read, no listing.
- Answers lie beside their request. Who puts them does not matter: they are copies of the log.
- What is decided is deleted, except the newest request: it shows where the queue ends (I8).

This module knows neither the log nor what a request means.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.control.request import decode_answer, decode_request, encode_answer
from headrace.log import paths
from headrace.plan.control import Answer, ControlRequest
from headrace.plan.decisions.control import Damage
from headrace.store.store import Store


class RequestQueue:
    """The requests of one checkpoint, and the answers to them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def make(self) -> None:
        """Creates the queue's directory, where the store has directories."""
        self._store.make_directory(paths.CONTROL)

    def last(self) -> int:
        """The highest position that holds a request, as a listing shows it; 0 if none does."""
        found = [name for name in self._store.list(paths.CONTROL) if name.isdigit()]
        return int(found[-1]) if found else 0

    def names(self) -> set[str]:
        """All names in the queue: requests and answers."""
        return set(self._store.list(paths.CONTROL))

    def put(self, position: int, data: bytes) -> bool:
        """Puts a request; returns whether the position was free."""
        return self._store.put_if_absent(paths.request(position), data)

    def read(self, position: int) -> ControlRequest | Damage | None:
        """The request at a position; None if there is none."""
        name = paths.request(position)
        try:
            data = self._store.read(name)
        except FileNotFoundError:
            return None
        return decode_request(data, name)

    def read_from(self, position: int, count: int) -> list[ControlRequest | Damage]:
        """The requests from a position on, up to the first that is missing."""
        found: list[ControlRequest | Damage] = []
        while len(found) < count:
            request = self.read(position + len(found))
            if request is None:
                break
            found.append(request)
        return found

    def put_answer(self, answer: Answer, suffix: str = paths.ANSWER) -> None:
        """Puts an answer, unless it is there: whoever put it has put the same."""
        self._store.put_if_absent(paths.request(answer.position, suffix), encode_answer(answer))

    def answer(self, position: int, suffix: str = paths.ANSWER) -> Answer | None:
        """The answer at a position; None if there is none."""
        name = paths.request(position, suffix)
        try:
            data = self._store.read(name)
        except FileNotFoundError:
            return None
        return decode_answer(data, name)

    def trim(self, names: Iterable[str], cursor: int, kept: int) -> None:
        """Deletes what is decided: requests before the cursor, answers `kept` positions behind.

        `names`: those that may be there; names of a later position are left.
        """
        freed = []
        for name in names:
            position, dot, _ = name.partition(".")
            if position.isdigit() and int(position) < (cursor - kept + 1 if dot else cursor):
                freed.append(f"{paths.CONTROL}/{name}")
        self._store.delete_all(freed)


def names_between(first: int, last: int, kept: int) -> list[str]:
    """The names that are freed while the cursor goes from one position to another."""
    names = [f"{at:020d}" for at in range(max(first, 1), last)]
    for at in range(max(first - kept, 1), last - kept + 1):
        names += [f"{at:020d}{suffix}" for suffix in (paths.ANSWER, paths.DONE)]
    return names
