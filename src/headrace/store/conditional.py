"""A conditional put whose outcome is resolved: the same rules for every object store. Pure.

A conditional put ("create this object unless the name is taken") has more than two answers:

- created: the object is this writer's.
- taken (412): the object is another's; or it is this writer's own, because a client library has
  repeated a request whose first answer was lost.
- no answer, 409, 429, 500, 503: it was created, it was not, or it will be later.

So each put carries a random nonce, and only "created" is believed. After any other answer the
object is looked up: the writer's own nonce means success, another's means that the name is taken.
Where nothing is there, the same put is sent again. It may be sent many times: bytes and nonce stay
the same, and the condition lets only one of them create the object.

A put that is given up may still create the object later. The caller gets a StoreError, which says
that the outcome is unknown.

It must not know how a store is reached: its caller passes the two requests.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.errors import StoreError

TRIES_MAX = 5
PAUSE_S = 0.05
"""The pause after the first try; it doubles with each further one."""


class Unanswered(Exception):
    """A request failed in such a way that its outcome is not known: retry, or look."""


def put_until_known(
    what: str,
    put: Callable[[], bool],
    look: Callable[[], bool | None],
    pause: Callable[[float], None],
) -> bool:
    """Whether a conditional put has created its object; StoreError if that cannot be found out.

    - `what`: the object, for the message.
    - `put`: sends the request once. True: created. False: the name is taken.
    - `look`: True if the object there has this put's nonce, False if it has another one, None
      if there is none.
    - `pause`: waits for so many seconds.

    Both requests raise Unanswered where their outcome is not known. Other errors are final (the
    store refuses, and will refuse again) and pass through.
    """
    failure: Unanswered | None = None
    for attempt in range(TRIES_MAX):
        if attempt:
            pause(PAUSE_S * 2 ** (attempt - 1))
        try:
            if put():
                return True
        except Unanswered as error:
            failure = error
        try:
            mine = look()
        except Unanswered as error:
            failure, mine = error, None
        if mine is not None:
            return mine
    raise StoreError(
        f"cannot write {what}: {failure or 'the name is taken and free by turns'}; whether it was "
        "written is not known"
    ) from failure
