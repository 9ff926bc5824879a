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
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.causal import outside
from headrace.errors import HeadraceError
from headrace.model.services import CallOptions

encode_plain: Callable[[Any], bytes] = msgspec.msgpack.Encoder(order="deterministic").encode
"""Plain data as bytes, equal for equal data."""


class Batching(NamedTuple):
    """Which questions may be asked together, and how many."""

    group: Hashable
    """Questions of one group may share a batch."""
    size: int
    in_flight: int
    """How many batches may be under way at once."""


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

    @property
    def batching(self) -> Batching | None:
        """How it is asked together with others; None if it is asked alone."""
        return None

    def perform_many(
        self, asked: Sequence[tuple[Question, Callable[[], str]]], one: outside.Try
    ) -> Sequence[bytes | Exception]:
        """Asks a batch of its group, with their keys; returns each answer, or its own error."""
        raise AssertionError("a question that is asked alone was asked in a batch")


class Asking(NamedTuple):
    """A question under the name of its call."""

    name: str
    question: Question
    key: Callable[[], str]
    """Creates the idempotency key."""


class Asker(ABC):
    """A context that can ask questions."""

    @abstractmethod
    def ask(self, question: Question) -> bytes:
        """Asks once; returns the answer as bytes. Without one: ServiceError or CallUncertain."""

    @abstractmethod
    def ask_many(self, questions: Sequence[Question]) -> list[bytes | HeadraceError]:
        """Asks each question once; returns each answer, or its ServiceError or CallUncertain."""


def digest(data: bytes) -> bytes:
    """A digest that does not reveal the data."""
    return hashlib.blake2b(data, digest_size=16).digest()
