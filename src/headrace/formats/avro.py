"""`formats.avro`: values in Avro, of a schema that is given, or of one that messages name.

The schema that a message was written with comes from the registry. If another one is given, values
are resolved to it, by Avro's rules: fields that it does not have are left out, those that it adds
get their defaults. What cannot be resolved is no record.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headrace.errors import InvalidPipeline, SinkError, SourceError, SourceUnavailable
from headrace.formats.avro_fit import fitter
from headrace.formats.avro_guard import needs_a_walk, walk
from headrace.formats.format import HEADER, Format, extra
from headrace.formats.registry_client import Registry, RegistryClient, RegistrySchema, UnknownSchema

_REASON_MAX = 300
_REFERENCES_MAX = 200


def avro(
    schema: str | Mapping[str, Any] | list[Any] | None = None,
    *,
    registry: Registry | None = None,
    subject: str | None = None,
    register: bool = True,
) -> Format:
    """Values in Avro, for `value=` of `sources.kafka` and `sinks.kafka`.

    - `schema`: as JSON text, or as dicts and lists. To write, it is needed. To read, it is what
      values are resolved to; without it, values are as they were written.
    - `registry`: messages begin with the id of their schema there. Without it, they are plain Avro
      of `schema`.
    - `subject`: under which a sink registers its schema, "<topic>-value" unless given.
      `register=False`: it must be there already.

    Records become dicts; decimals, dates and times become those of Python (timestamps in UTC).
    """
    if schema is None and registry is None:
        raise InvalidPipeline("formats.avro needs a schema, a registry, or both")
    return AvroFormat(schema, registry, subject, register)


class _Parsed(NamedTuple):
    """A schema as fastavro has it."""

    schema: Any
    named: Mapping[str, Any]
    walked: bool
    """Whether messages are walked over before they are read."""


class AvroFormat(Format):
    """The format behind `avro`."""

    name = "avro"
    schema_type = "AVRO"

    def __init__(
        self, schema: Any, registry: Registry | None, subject: str | None, register: bool
    ) -> None:
        super().__init__(registry, subject, register)
        self.schema: str | None = None
        extra("fastavro", "fastavro", self.name)
        if schema is not None:
            try:
                self.schema = _text(schema)
                _given(self.schema)
            except (TypeError, ValueError, RecursionError) as error:
                raise InvalidPipeline(
                    f"formats.avro: schema= is no schema of Avro: {_short(error)}"
                ) from None

    def require_writing(self) -> None:
        if self.schema is None:
            raise InvalidPipeline("formats.avro: a sink needs schema=, also with a registry")

    def decode(self, raw: bytes) -> Any:
        own = None if self.schema is None else _given(self.schema)
        if self.registry is None:
            if own is None:
                raise SourceError("formats.avro needs a schema, a registry, or both")
            return _read(raw, own, None)
        found, number = self.writers_schema(raw, SourceUnavailable, SourceError)
        writer = _registered(self.registry, number, found)
        return _read(raw[HEADER:], writer, own)

    def encoder(self, topic: str) -> Callable[[Any], bytes]:
        if self.schema is None:
            raise SinkError("formats.avro has no schema to write")
        fastavro, own = extra("fastavro", "fastavro", self.name), _given(self.schema)
        text = self.schema
        header = self.header(topic, lambda: text)
        fit = fitter(own.schema, own.named)

        def encode(value: Any) -> bytes:
            out = io.BytesIO()
            out.write(header)
            fitted = fit(value)
            try:
                fastavro.schemaless_writer(out, own.schema, fitted, strict_allow_default=True)
            except Exception as error:  # of whatever kind: the library has many
                raise ValueError(_short(error)) from None
            return out.getvalue()

        return encode


def _read(raw: bytes, writer: _Parsed, reader: _Parsed | None) -> Any:
    if writer.walked:
        walk(raw, writer.schema, writer.named)
    fastavro, stream = extra("fastavro", "fastavro", "avro"), io.BytesIO(raw)
    try:
        value = fastavro.schemaless_reader(
            stream, writer.schema, None if reader is None else reader.schema
        )
    except (EOFError, IndexError):
        raise ValueError("not Avro of this schema: it is cut off, or of another schema") from None
    except Exception as error:  # of whatever kind: bytes of another schema may mean anything
        raise ValueError(f"not Avro of this schema: {_short(error)}") from None
    if (rest := len(raw) - stream.tell()) > 0:
        raise ValueError(f"not Avro of this schema: {rest} bytes are left after the value")
    return value


def _text(schema: Any) -> str:
    """A schema as JSON. The name of a type, such as long or null, is a schema, too."""
    if isinstance(schema, str) and schema.strip()[:1] in ("{", "[", '"'):
        return schema
    return json.dumps(schema)


@functools.lru_cache(maxsize=256)
def _given(text: str) -> _Parsed:
    return _parse(text, {})


def _parse(text: str, named: dict[str, Any]) -> _Parsed:
    try:
        parsed = extra("fastavro", "fastavro", "avro").parse_schema(json.loads(text), named)
    except Exception as error:
        raise ValueError(_short(error)) from None
    return _Parsed(parsed, named, needs_a_walk(parsed, named))


_writers: dict[tuple[Registry, int], _Parsed | str] = {}


def _registered(where: Registry, number: int, found: RegistrySchema) -> _Parsed:
    known = _writers.get((where, number))
    if known is None:
        client = where.client(SourceUnavailable, SourceError)
        try:
            named: dict[str, Any] = {}
            _parse_references(client, found, named, [])
            known = _parse(found.schema, named)
        except UnknownSchema as error:  # it may be there later
            raise ValueError(str(error)) from None
        except (ValueError, RecursionError) as error:
            known = f"its schema {number} in the registry cannot be used: {_short(error)}"
        _writers[where, number] = known
    if isinstance(known, str):
        raise ValueError(known)
    return known


def _parse_references(
    client: RegistryClient, found: RegistrySchema, named: dict[str, Any], seen: list[Any]
) -> None:
    for reference in found.references:
        if reference in seen:
            continue
        seen.append(reference)
        if len(seen) > _REFERENCES_MAX:
            raise ValueError(f"it refers to more than {_REFERENCES_MAX} others")
        inner = client.version(reference)
        _parse_references(client, inner, named, seen)
        _parse(inner.schema, named)


def _short(error: object) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _REASON_MAX else f"{text[:_REASON_MAX]}..."
