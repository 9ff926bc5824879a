"""`state=`: where the fields and map entries of keys are kept. Pure.

A URL may hold a password. Only `StateChoice.given` has it; all that is logged, shown or written
names the store by `shown`.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import msgspec

from headrace.errors import IncompatibleState, InvalidPipeline
from headrace.plan.interval.cadence import Cadence
from headrace.plan.ledger import Ledger
from headrace.plan.state.applied import SEGMENTS

NAMES = (SEGMENTS, "files", "log")
"""Those that keep state in the checkpoint's own directory."""
SCHEMES = ("redis", "rediss", "hbase")
"""Those that keep it on a server, which a URL names."""
_PASSING = {
    "redis": ("timeout", "durability"),
    "rediss": ("timeout", "durability"),
    "hbase": ("timeout",),
}
"""Options that may change from one start to the next. What HBase was sent without its log is not
made durable by a later write to that log, so its durability stays."""
_SECRETS = ("password", "username", "user", "token", "secret")


class StateChoice(msgspec.Struct, frozen=True):
    """A checked `state=`."""

    given: str = SEGMENTS
    """As it was given, with a password if it has one: never to be shown."""

    @property
    def shown(self) -> str:
        """Without user and password."""
        return self._without(_SECRETS)

    @property
    def store(self) -> str:
        """Which store it is: without the options that may be others with the next start."""
        return self._without((*_SECRETS, *_PASSING.get(self.name, ())))

    def _without(self, options: Sequence[str]) -> str:
        if "://" not in self.given:
            return self.given
        parts = urlsplit(self.given)
        host = parts.netloc.rpartition("@")[2]
        query = [(n, v) for n, v in parse_qsl(parts.query) if n.lower() not in options]
        return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), urlencode(query), ""))

    @property
    def name(self) -> str:
        """The kind of store: "files", "redis"."""
        return self.given.partition("://")[0]

    @property
    def copies(self) -> bool:
        """Whether cells are copied into a store, and not kept in segments alone."""
        return self.given != SEGMENTS

    @property
    def planned(self) -> str:
        """As a plan names it."""
        return self.shown if self.copies else ""

    def __repr__(self) -> str:
        return f"StateChoice({self.shown!r})"


IN_SEGMENTS = StateChoice()


def check_state(given: object) -> StateChoice:
    """The choice, checked; InvalidPipeline says what can be chosen."""
    choice = StateChoice(given if isinstance(given, str) else "")
    if choice.given in NAMES or (choice.name in SCHEMES and "://" in choice.given):
        return choice
    shown = choice.shown if isinstance(given, str) else type(given).__name__
    urls = ", ".join(f"{scheme}://..." for scheme in SCHEMES)
    raise InvalidPipeline(
        f"state= is {', '.join(map(repr, NAMES))}, or a URL ({urls}), not {shown!r:.80}"
    )


def refuse_other_state(ledger: Ledger, choice: StateChoice, where: str) -> None:
    """Refuses to continue a checkpoint with another state store than the one it has."""
    if not ledger.epoch and ledger.open_plan is None:
        return
    has = ledger.applied.backend or SEGMENTS
    if StateChoice(has).store != choice.store:
        raise IncompatibleState(
            f"the checkpoint {where} keeps its state in {has!r}, and this start says "
            f"state={choice.shown!r}: start it with state={has!r}, or begin a new checkpoint"
        )


def refuse_with_interval(choice: StateChoice, cadence: Cadence) -> None:
    """Refuses a checkpoint interval: what is applied must be durable first (O2)."""
    if choice.copies and not cadence.is_each_epoch:
        raise InvalidPipeline(
            f"checkpoint_every={cadence} writes changes of state without a sync, and "
            f"state={choice.shown!r} applies only what is durable: choose one of the two"
        )


def refuse_without_history(ledger: Ledger, what: str) -> None:
    """Refuses what needs the state of a past epoch, where the state store keeps no history (O7)."""
    if ledger.applied.copies:
        raise IncompatibleState(
            f"{what} is not possible with state={ledger.applied.backend!r}: that store keeps the "
            f"newest version of each cell and no history. It is with state={SEGMENTS!r}"
        )
