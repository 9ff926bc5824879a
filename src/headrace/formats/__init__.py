"""Formats of values in topics: Avro and Protobuf, with a schema given or from a schema registry.

`value=` of `sources.kafka` and `sinks.kafka` takes them. `registry` says where a schema registry
is; without one, messages are plain Avro or Protobuf of the schema that is given.
"""

from headrace.formats.avro import avro
from headrace.formats.protobuf import protobuf
from headrace.formats.registry_client import registry

__all__ = ["avro", "protobuf", "registry"]
