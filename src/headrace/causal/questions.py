"""Questions: what a hook asks of the outside world.

A question has all that is needed to ask it and to log its answer. The request is encoded, so that
a rerun with another request is detected. Only a digest of it is kept, because it may contain
secrets. The context of the hook (`Asker.ask`) decides, with the help of `calls`, how a question is
named and where its answer is logged.

A service (`http`, `functions`) turns the calls of a hook into questions.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import msgspec

from headrace.causal import outside
from headrace.model.services import CallOptions

encode_plain: Callable[[Any], bytes] = msgspec.msgpack.Encoder(order="deterministic").encode
"""Plain data as bytes, equal for equal data."""


class Question(ABC):
    """One request of a hook to an outside service."""

    __slots__ = ("options", "repeats", "request", "sends_key", "what")

    what: str
    """How errors name it, without anything that may be a secret."""
    request: bytes
    """A digest of the whole request."""
    options: CallOptions
    repeats: bool
    """Whether it may be asked again under another name: true for a GET only."""
    sends_key: bool
    """Whether `perform` sends the idempotency key."""

    @abstractmethod
    def perform(self, key: Callable[[], str], one: outside.Try) -> bytes:
        """Asks; returns the answer as bytes. `key` creates the idempotency key."""


class Asker(ABC):
    """A context that can ask questions."""

    @abstractmethod
    def ask(self, question: Question) -> bytes:
        """Asks once; returns the answer as bytes. Without one: ServiceError or CallUncertain."""


def digest(data: bytes) -> bytes:
    """A digest that does not reveal the data."""
    return hashlib.blake2b(data, digest_size=16).digest()
