"""Questions: what a hook asks of the outside world.

A question holds all that is needed to ask it and to log its answer. What is asked is encoded,
so that a rerun that asks something else is noticed; only a digest of it is kept, as it may hold
secrets. How a question is named and where its answer is logged is decided by the context of the
hook (`Asker.ask`), with the help of `calls`.

A service turns calls of a hook into questions: `http`, `functions`.
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
    """What a hook asks of the outside."""

    __slots__ = ("options", "repeats", "request", "sends_key", "what")

    what: str
    """How errors name it, without anything that may be a secret."""
    request: bytes
    """A digest of all that is asked."""
    options: CallOptions
    repeats: bool
    """Whether the same may be asked again under another name: a GET may, all others may not."""
    sends_key: bool
    """Whether `perform` sends the idempotency key."""

    @abstractmethod
    def perform(self, key: Callable[[], str], one: outside.Try) -> bytes:
        """Asks, and gives the answer as bytes; `key` makes the idempotency key."""


class Asker(ABC):
    """A context that can ask the outside."""

    @abstractmethod
    def ask(self, question: Question) -> bytes:
        """Asks once: the answer as bytes; ServiceError or CallUncertain where there is none."""


def digest(data: bytes) -> bytes:
    """A digest that does not reveal what was digested."""
    return hashlib.blake2b(data, digest_size=16).digest()
