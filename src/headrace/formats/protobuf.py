"""`formats.protobuf`: values in Protobuf, of a message that is given, or of one that messages name.

Protobuf reads fields by their numbers, so a given message reads what older and newer writers wrote:
fields that it does not have are left out, those that it adds have their defaults.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from headrace.errors import InvalidPipeline, SinkError, SourceError, SourceUnavailable
from headrace.formats.format import HEADER, Format, extra, schema_id
from headrace.formats.proto_schemas import (
    main_file,
    message_class,
    message_name,
    message_path,
    of_class,
    of_text,
    registered_text,
)
from headrace.formats.proto_values import fill, to_value
from headrace.formats.registry_client import Registry, RegistryClient, RegistrySchema, UnknownSchema

_INDEXES_MAX = 32
_REFERENCES_MAX = 200


def protobuf(
    message: Any = None,
    *,
    schema: str | bytes | None = None,
    registry: Registry | None = None,
    subject: str | None = None,
    register: bool = True,
) -> Format:
    """Values in Protobuf, for `value=` of `sources.kafka` and `sinks.kafka`.

    - `message`: a class that protoc generated, or the name of a message in `schema`.
    - `schema`: the text of a .proto file, or the bytes of a set of descriptors (`protoc
      --descriptor_set_out --include_imports`). Without `message`, its first message is meant.
    - `registry`: messages begin with the id of their schema and the place of their type in it.
      Without `message` and `schema`, a source reads every message as the registry describes it.
    - `subject`: under which a sink registers its schema, "<topic>-value" unless given.
      `register=False`: it must be there already.

    Messages become dicts with all their fields; one that is absent is None.
    """
    where = "formats.protobuf"
    extra("google.protobuf", "protobuf", "protobuf")
    if message is None and schema is None and registry is None:
        raise InvalidPipeline(f"{where} needs a message, a schema or a registry")
    given: _Given | None = None
    try:
        if isinstance(message, type) and schema is None:
            given = _Given(*of_class(message))
        elif schema is not None and (message is None or isinstance(message, str)):
            given = _of_schema(schema, message)
        elif message is not None:
            raise ValueError("message= is a generated class, or the name of a message in schema=")
        if given is not None:
            message_class(given.files, given.name)
    except (ValueError, AttributeError) as error:
        raise InvalidPipeline(f"{where}: {error}") from None
    return ProtobufFormat(given, registry, subject, register)


class _Given:
    """A message that was given, without the code that was generated for it."""

    def __init__(self, files: bytes, name: str, file: str, text: str = "") -> None:
        self.files = files
        self.name = name
        self.file = file
        self.text = text


def _of_schema(schema: str | bytes, name: str | None) -> _Given:
    files = of_text(schema) if isinstance(schema, str) else schema
    try:
        file = main_file(files)
    except Exception as error:
        raise ValueError(f"schema= is no set of file descriptors: {error}") from None
    full = message_name(files, file, (0,))
    if name is not None:
        full = message_name(files, file, message_path(files, file, name))
    return _Given(files, full, file, schema if isinstance(schema, str) else "")


class ProtobufFormat(Format):
    """The format behind `protobuf`."""

    name = "protobuf"
    schema_type = "PROTOBUF"

    def __init__(
        self,
        given: _Given | None,
        registry: Registry | None,
        subject: str | None,
        register: bool,
    ) -> None:
        super().__init__(registry, subject, register)
        self.given = given

    def require_writing(self) -> None:
        if self.given is None:
            raise InvalidPipeline(
                "formats.protobuf: a sink needs a message or schema=, also with a registry"
            )

    def decode(self, raw: bytes) -> Any:
        body, kind = raw, None
        if self.registry is not None:
            schema_id(raw)
            path, at = _path(raw, HEADER)
            body = raw[at:]
            if self.given is None:
                found, number = self.writers_schema(raw, SourceUnavailable, SourceError)
                kind = _registered(self.registry, number, found, path)
        if kind is None:
            if self.given is None:
                raise SourceError("formats.protobuf needs a message, a schema or a registry")
            kind = message_class(self.given.files, self.given.name)
        try:
            return to_value(kind.FromString(body))
        except extra("google.protobuf.message", "protobuf", self.name).DecodeError as error:
            raise ValueError(f"not Protobuf of {kind.DESCRIPTOR.full_name}: {error}") from None
        except OverflowError as error:
            raise ValueError(f"it has a time that Python cannot hold: {error}") from None

    def encoder(self, topic: str) -> Callable[[Any], bytes]:
        self.require_writing()
        given = self.given
        if given is None:
            raise SinkError("formats.protobuf has no message to write")
        kind = message_class(given.files, given.name)
        header = self.header(topic, lambda: given.text or registered_text(given.files, given.file))
        if header:
            header += _indexes(message_path(given.files, given.file, given.name))

        def encode(value: Any) -> bytes:
            made = kind()
            fill(made, value)
            try:
                return header + bytes(made.SerializeToString(deterministic=True))
            except extra("google.protobuf.message", "protobuf", self.name).EncodeError as error:
                raise ValueError(str(error)) from None

        return encode


def _path(raw: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """The indexes before a message, and where they end. One zero stands for the first message."""
    count, at = _number(raw, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= _INDEXES_MAX:
        raise ValueError(f"it claims to be nested {count} messages deep")
    path = []
    for _ in range(count):
        index, at = _number(raw, at)
        path.append(index)
    return tuple(path), at


def _number(raw: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while at < len(raw) and shift < 70:
        byte = raw[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at
        shift += 7
    raise ValueError("it is cut off before its message")


def _indexes(path: tuple[int, ...]) -> bytes:
    if path == (0,):
        return b"\0"
    out = bytearray()
    for number in (len(path), *path):
        left = number << 1
        while left > 0x7F:
            out.append(left & 0x7F | 0x80)
            left >>= 7
        out.append(left)
    return bytes(out)


_writers: dict[tuple[Registry, int], bytes | str] = {}


def _registered(where: Registry, number: int, found: RegistrySchema, path: tuple[int, ...]) -> Any:
    known = _writers.get((where, number))
    if known is None:
        client = where.client(SourceUnavailable, SourceError)
        try:
            known = of_text(found.schema, _referred(client, found, {}))
        except UnknownSchema as error:  # it may be there later
            raise ValueError(str(error)) from None
        except ValueError as error:
            known = f"its schema {number} in the registry cannot be used: {error}"
        _writers[where, number] = known
    if isinstance(known, str):
        raise ValueError(known)
    return _class_at(known, path)


@functools.lru_cache(maxsize=256)
def _class_at(files: bytes, path: tuple[int, ...]) -> Any:
    return message_class(files, message_name(files, main_file(files), path))


def _referred(
    client: RegistryClient, found: RegistrySchema, others: dict[str, str]
) -> dict[str, str]:
    """The texts of all files that a schema imports."""
    for reference in found.references:
        if reference.name not in others:
            if len(others) > _REFERENCES_MAX:
                raise ValueError(f"it refers to more than {_REFERENCES_MAX} others")
            inner = client.version(reference)
            others[reference.name] = inner.schema
            _referred(client, inner, others)
    return others
