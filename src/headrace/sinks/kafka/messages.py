"""Rows as messages: a key, a value and a time each. Runs in tasks, before the commit.

What a broker would refuse is refused here: after the commit it would be too late.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import xxhash

from headrace.errors import CorruptCheckpoint, InvalidPipeline, InvalidRecord, SinkError
from headrace.formats.format import Format
from headrace.model.functions import checked_function
from headrace.model.key_spec import KeyGiven, KeySpec
from headrace.model.sink import Part
from headrace.model.values.names import did_you_mean
from headrace.model.values.rows import Rows
from headrace.model.values.shown import shown
from headrace.sinks.columns import refuse_nanoseconds
from headrace.sinks.jsonl import json_lines

KINDS = ("json", "text", "bytes")
_HEAD_BYTES = 512
"""More than what a message adds to its key and value."""

_encoder = msgspec.msgpack.Encoder()
_json = msgspec.json.Encoder()
_Columns = tuple[list[bytes | None], list[bytes | None], list[int]]
_decoder = msgspec.msgpack.Decoder(_Columns)


class Message(NamedTuple):
    """A message, before it is sent."""

    key: bytes | None
    value: bytes | None
    time_ms: int


class MessageFormat:
    """How rows become messages; it travels to tasks."""

    def __init__(
        self,
        key: KeyGiven,
        value: str | Format | Callable[[Any], Any],
        bytes_max: int,
        topic: str,
    ) -> None:
        where = "sinks.kafka"
        self.key = KeySpec(key, where=f"{where}: key=")
        if isinstance(value, str) and value not in KINDS:
            raise InvalidPipeline(
                f"{where}: value= is one of {', '.join(KINDS)}, a format (headrace.formats), or a "
                "function of the value, not "
                f"{value!r:.80}{did_you_mean(value, KINDS)}"
            )
        if isinstance(value, Format):
            value.require_writing()
        elif not isinstance(value, str):
            checked_function(value, f"{where}: value=", "value")
        self.value = value
        self.bytes_max = bytes_max
        self.topic = topic

    def encode(self, rows: Rows) -> bytes:
        """The staged bytes of rows; b"" without rows."""
        if not len(rows):
            return b""
        # What a function of the value makes of its times is its own affair.
        written = (self.key.columns or ()) if callable(self.value) else None
        refuse_nanoseconds(rows, "sinks.kafka", written)
        given = rows.values()
        keys, values = self._keys(given), self._values(given)
        sizes = [
            len(key or b"") + len(value or b"") for key, value in zip(keys, values, strict=True)
        ]
        if (size := max(sizes)) > self.bytes_max - _HEAD_BYTES:
            raise SinkError(
                f"a row for the topic {self.topic} has {size:,} bytes, and a message at most "
                f"{self.bytes_max:,}: make it smaller, or raise message.max.bytes in options= "
                f"(and max.message.bytes of the topic): {shown(given[sizes.index(size)])}"
            )
        return _encoder.encode((keys, values, (rows.timestamps // 1000).tolist()))

    def _keys(self, given: list[Any]) -> list[bytes | None]:
        if self.key.keyless:
            return [None] * len(given)
        column = self.key.columns[0] if self.key.single and self.key.columns else None
        return [
            cell.encode()
            if type(row) is dict and type(cell := row.get(column)) is str
            else self._key(row)
            for row in given
        ]

    def _values(self, given: list[Any]) -> list[bytes | None]:
        if self.value == "json":
            # Inside JSON, a newline is always escaped. One that ends the bytes ends the last row.
            lines = json_lines(given)[:-1].split(b"\n")
            return [
                None if value is None else line for value, line in zip(given, lines, strict=True)
            ]
        if isinstance(self.value, Format):
            return self._formatted(self.value, given)
        if not callable(self.value):
            return [self._bytes(value, value) for value in given]
        return [self._bytes(self._made("value=", self.value, value), value) for value in given]

    def _made(self, what: str, make: Callable[[Any], Any], value: Any) -> Any:
        """What a function of the user makes of a row."""
        try:
            return make(value)
        except InvalidRecord as error:
            raise SinkError(f"a row for the topic {self.topic} has no key: {error}") from error
        except Exception as error:
            raise SinkError(
                f"a row for the topic {self.topic}: the function of {what} raises "
                f"{type(error).__name__}: {error}: {shown(value)}"
            ) from error

    def prepare(self) -> None:
        """Asks a registry for what tasks will need: a refusal comes before the first row."""
        if isinstance(self.value, Format):
            self.value.encoder(self.topic)

    def _formatted(self, format: Format, given: list[Any]) -> list[bytes | None]:
        encode = format.encoder(self.topic)
        made: list[bytes | None] = []
        for value in given:
            try:
                made.append(None if value is None else encode(value))
            except ValueError as error:
                raise SinkError(
                    f"a row for the topic {self.topic} does not fit its {format.name} schema: "
                    f"{error}: {shown(value)}"
                ) from None
        return made

    def _bytes(self, made: Any, value: Any) -> bytes | None:
        if made is None or isinstance(made, bytes):
            return made
        if isinstance(made, str) and self.value != "bytes":
            return made.encode()
        how = "the function" if callable(self.value) else f'value="{self.value}"'
        raise SinkError(
            f"a row for the topic {self.topic} is no message: {how} gives "
            f"{type(made).__name__}, not bytes or text: {shown(value)}"
        )

    def _key(self, value: Any) -> bytes | None:
        key = self._made("key=", self.key.extract, value)
        if key is None or isinstance(key, bytes):
            return key
        if isinstance(key, str):
            return key.encode()
        try:
            return _json.encode(key)
        except (TypeError, ValueError, OverflowError) as error:
            raise SinkError(
                f"the key of a row for the topic {self.topic} cannot be written: {error}"
            ) from error


def load_messages(part: Part) -> list[Message]:
    """The messages of a staged part."""
    data = part.read()
    if not data:
        return []
    try:
        keys, values, times = _decoder.decode(data)
    except msgspec.DecodeError as error:
        raise CorruptCheckpoint(
            f"the rows staged by {part.label} cannot be read: {error}"
        ) from error
    return list(map(Message, keys, values, times))


def dealt(messages: list[Message], producers: int) -> list[list[Message]]:
    """Messages by producer: those of one key go to one, in their order."""
    if producers == 1:
        return [messages]
    found: list[list[Message]] = [[] for _ in range(producers)]
    for number, message in enumerate(messages):
        place = number if message.key is None else xxhash.xxh3_64_intdigest(message.key)
        found[place % producers].append(message)
    return found
