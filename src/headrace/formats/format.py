"""`Format`: how the value of a message is read and written.

Invariants:
- What is wrong with one message is a ValueError with a reason, the same in every attempt. What is
  wrong with the registry is an error of the source or the sink: an outage, or a refusal.
- A format travels to tasks. What it learns there is kept by the process, not by the format.
"""

from __future__ import annotations

import importlib
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from headrace.errors import HeadraceError, InvalidPipeline, SinkError, SinkUnavailable
from headrace.formats.registry_client import Registry, UnknownSchema

HEADER = 5
"""The bytes before a message of a registry: a zero, and the schema's id."""


class Format(ABC):
    """The base of all formats."""

    name = ""
    schema_type = ""
    """What a registry calls it."""

    def __init__(self, given: Registry | None, subject: str | None, register: bool) -> None:
        where = f"formats.{self.name}"
        if given is not None and not isinstance(given, Registry):
            raise InvalidPipeline(f'{where}: registry= is formats.registry("http://...")')
        if subject is not None and not subject:
            raise InvalidPipeline(f"{where}: subject= is the name of a subject, not an empty text")
        self.registry = given
        self.subject = subject
        self.register = register

    @abstractmethod
    def decode(self, raw: bytes) -> Any:
        """The value of a message. ValueError with a reason if it has none."""

    @abstractmethod
    def require_writing(self) -> None:
        """InvalidPipeline if a sink cannot use it: a registry alone does not say what to write."""

    @abstractmethod
    def encoder(self, topic: str) -> Callable[[Any], bytes]:
        """A function from a value to its message; ValueError if it does not fit.

        It asks the registry, so it may raise SinkUnavailable or SinkError."""

    def header(self, topic: str, schema: Callable[[], str]) -> bytes:
        """What comes before every message of a topic: nothing without a registry."""
        if self.registry is None:
            return b""
        subject = self.subject or f"{topic}-value"
        client = self.registry.client(SinkUnavailable, SinkError)
        number = client.id_of(subject, self.schema_type, schema(), register=self.register)
        return b"\0" + number.to_bytes(4, "big")

    def writers_schema(
        self, raw: bytes, unavailable: type[HeadraceError], refused: type[HeadraceError]
    ) -> tuple[Any, int]:
        """The schema that a message names, as the registry has it, and its id."""
        if self.registry is None:
            raise ValueError("there is no registry")
        number = schema_id(raw)
        try:
            found = self.registry.client(unavailable, refused).schema(number)
        except UnknownSchema as error:
            raise ValueError(str(error)) from None
        if found.type != self.schema_type:
            raise ValueError(
                f"its schema {number} in the registry is {found.type}, not {self.schema_type}"
            )
        return found, number


def schema_id(raw: bytes) -> int:
    """The id of the schema of a message that was written with a registry."""
    if len(raw) < HEADER or raw[0] != 0:
        raise ValueError(
            "it does not begin with a zero byte and the id of a schema, as messages of a registry "
            "do; leave registry= out if it was written without one"
        )
    return int.from_bytes(raw[1:HEADER], "big")


def holds(kind: str, value: float) -> bool:
    """Whether a field of "float" or "double" holds a number: whole ones exactly, others rounded."""
    try:
        held = float(value)
        if kind == "float":
            (held,) = struct.unpack("<f", struct.pack("<f", held))
    except OverflowError:
        return False
    return held == value or type(value) is float


def extra(module: str, package: str, name: str) -> Any:
    """A module of an extra; InvalidPipeline, with what to install, if it is not there."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InvalidPipeline(
            f"formats.{name} needs {package}, which cannot be imported ({error}): "
            f"pip install 'headrace[{name}]'"
        ) from error
