"""A conditional put says the truth, whatever becomes of its requests."""

from itertools import product

import pytest

from headrace.errors import StoreError
from headrace.store.conditional import TRIES_MAX, Unanswered, put_until_known

ANSWERED, UNANSWERED, DROPPED, LATE, REPEATED = "answered", "unanswered", "dropped", "late", "again"
OUTCOMES = (ANSWERED, UNANSWERED, DROPPED, LATE, REPEATED)


class Server:
    """One name, and what becomes of the requests for it."""

    def __init__(self) -> None:
        self.owner: str | None = None
        self.late: list[str] = []
        self.pauses: list[float] = []

    def put(self, writer: str, outcome: str) -> bool:
        if outcome == LATE:
            self.late.append(writer)
        if outcome in (LATE, DROPPED):
            raise Unanswered(outcome)
        created = self.owner is None
        self.owner = self.owner or writer
        if outcome == UNANSWERED:
            raise Unanswered(outcome)
        return created and outcome != REPEATED

    def look(self, writer: str) -> bool | None:
        return None if self.owner is None else self.owner == writer

    def land(self) -> None:
        for writer in self.late:
            self.owner = self.owner or writer
        self.late = []


def put(server: Server, writer: str, outcomes: list[str]) -> bool:
    left = list(outcomes)

    def once() -> bool:
        server.land()
        return server.put(writer, left.pop(0) if left else ANSWERED)

    return put_until_known("a", once, lambda: server.look(writer), server.pauses.append)


@pytest.mark.parametrize("first", list(product(OUTCOMES, repeat=2)))
def test_of_two_writers_one_wins_and_both_know_it(first: tuple[str, ...]) -> None:
    for second in product(OUTCOMES, repeat=2):
        server = Server()
        won = [put(server, "a", list(first)), put(server, "b", list(second))]
        server.land()
        assert won == [True, False], "the first one returned before the second one began"
        assert server.owner == "a"


@pytest.mark.parametrize("outcomes", list(product(OUTCOMES, repeat=2)))
def test_a_name_that_is_taken_meanwhile_is_anothers(outcomes: tuple[str, ...]) -> None:
    """Another writer puts after each of the requests in turn."""
    for after in range(3):
        server, asked = Server(), 0

        def once(server: Server = server, after: int = after) -> bool:
            nonlocal asked
            if asked == after and server.owner is None:
                server.owner = "b"
            asked += 1
            return server.put("a", outcomes[asked - 1] if asked <= 2 else ANSWERED)

        mine = put_until_known("a", once, lambda s=server: s.look("a"), lambda seconds: None)
        assert mine == (server.owner == "a")
        asked = 0


def test_a_put_that_is_never_answered_is_given_up_after_pauses_that_grow() -> None:
    server = Server()
    with pytest.raises(StoreError, match="cannot write a: dropped; whether it was written is not"):
        put(server, "a", [DROPPED] * TRIES_MAX)
    assert len(server.pauses) == TRIES_MAX - 1
    assert server.pauses == sorted(server.pauses)
    assert server.pauses[0] < server.pauses[-1] < 5


def test_an_object_that_cannot_be_looked_up_is_not_taken_for_missing_or_foreign() -> None:
    server, looks = Server(), 0

    def look() -> bool | None:
        nonlocal looks
        looks += 1
        if looks < 3:
            raise Unanswered("timed out")
        return server.look("a")

    outcomes = [UNANSWERED, REPEATED, REPEATED]
    assert put_until_known("a", lambda: server.put("a", outcomes.pop(0)), look, lambda s: None)
    assert looks == 3


def test_a_store_that_refuses_for_good_is_not_asked_again() -> None:
    asked = []

    def refused() -> bool:
        asked.append(1)
        raise StoreError("access denied")

    with pytest.raises(StoreError, match="^access denied$"):
        put_until_known("a", refused, lambda: None, lambda seconds: None)
    assert len(asked) == 1


def test_a_name_that_is_taken_and_free_by_turns_is_given_up() -> None:
    with pytest.raises(StoreError, match="taken and free by turns"):
        put_until_known("a", lambda: False, lambda: None, lambda seconds: None)
