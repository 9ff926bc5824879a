"""Avro and Protobuf in topics, with a real broker and a real schema registry (Apicurio)."""

from __future__ import annotations

import json
import struct
import threading
import time
import urllib.request
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.servers import kafka
from tests.servers.kafka import consume, new_topic, produce, thorough
from tests.servers.registry import RegistryServer, registry_server
from tests.servers.test_kafka_source import Running, prepared, read_all
from tests.unit.engine.support import driver_of

from headrace import Pipeline, formats, sinks, sources, to
from headrace.bench.servers.kafka_server import KafkaServer
from headrace.errors import SinkError, SourceError, SourceUnavailable
from headrace.formats import registry_client
from headrace.plan.decisions.next_step import Run
from headrace.store.memory import MemoryStore

pytestmark = [thorough, pytest.mark.slow]

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "price",
            "type": [
                "null",
                {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2},
            ],
            "default": None,
        },
    ],
}
ROWS: list[dict[str, Any]] = [
    {
        "user": "a",
        "cents": 2**63 - 1,
        "at": datetime(2026, 11, 18, 1, 2, 3, 4, UTC),
        "price": Decimal("12345678901234567.89"),
    },
    {
        "user": "\N{GREEK SMALL LETTER PI}",
        "cents": -1,
        "at": datetime(1970, 1, 1, tzinfo=UTC),
        "price": None,
    },
]
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other { string x = 1; }
message Order {
  message Line { string sku = 1; uint64 count = 2; }
  string user = 1;
  repeated Line lines = 2;
  google.protobuf.Timestamp at = 3;
}
"""


@pytest.fixture
def server() -> KafkaServer:
    return kafka.broker()


@pytest.fixture
def apicurio() -> RegistryServer:
    return registry_server()


def written(server: KafkaServer, topic: str, rows: list[Any], format: Any) -> None:
    """Sends rows through a pipeline with a sink."""
    p = Pipeline("writes")
    p.read("rows", sources.memory([{"row": n} for n in range(len(rows))]))
    made = p.stream("rows").map(lambda value: rows[value["row"]])
    made.write(sinks.kafka(topic, servers=server.servers, value=format))
    driver = driver_of(p.freeze(), MemoryStore(), until="end")
    while isinstance(driver.step(), Run):
        pass
    driver.close()


def post(apicurio: RegistryServer, subject: str, schema: Any, **more: Any) -> int:
    """Registers a schema, as another program would."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    request = urllib.request.Request(
        f"{apicurio.url}/subjects/{subject}/versions",
        json.dumps({"schema": text, **more}).encode(),
        {"Content-Type": "application/vnd.schemaregistry.v1+json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return int(json.load(answer)["id"])


def framed(number: int, body: bytes) -> bytes:
    return struct.pack(">bI", 0, number) + body


def test_avro_goes_from_topic_to_topic_as_it_is(
    server: KafkaServer, apicurio: RegistryServer, tmp_path: Path
) -> None:
    topic, registry = new_topic(server), formats.registry(apicurio.url)
    written(server, topic, ROWS, formats.avro(ORDER, registry=registry))
    messages = [message.value() for message in consume(server, topic)]
    assert all(message[0] == 0 for message in messages)
    number = int.from_bytes(messages[0][1:5], "big")
    with urllib.request.urlopen(f"{apicurio.url}/subjects/{topic}-value/versions/latest") as said:
        assert json.load(said)["id"] == number
    source = sources.kafka(topic, servers=server.servers, value=formats.avro(registry=registry))
    running = Running(source)
    running.run()
    assert running.sink.rows == ROWS
    again = Running(
        sources.kafka(
            topic, servers=server.servers, value=formats.avro(registry=registry), timestamp="at"
        )
    )
    again.run()
    assert again.sink.rows == ROWS


def test_values_of_older_and_newer_writers_are_resolved_to_the_given_schema(
    server: KafkaServer, apicurio: RegistryServer, tmp_path: Path
) -> None:
    def schema(*fields: dict[str, Any]) -> dict[str, Any]:
        return {"type": "record", "name": "Click", "fields": list(fields)}

    user, count = {"name": "user", "type": "string"}, {"name": "count", "type": "int"}
    wide = {"name": "count", "type": "long", "default": 7}
    page = {"name": "page", "type": "string", "default": "/"}
    topic, registry = new_topic(server), formats.registry(apicurio.url)
    for fields, row in (
        ((user, count), {"user": "old", "count": 1}),
        ((user, page), {"user": "new", "page": "/buy"}),
    ):
        written(server, topic, [row], formats.avro(schema(*fields), registry=registry))
    incompatible = post(
        apicurio, f"{topic}-else", {"type": "record", "name": "Click", "fields": []}
    )
    produce(server, topic, [framed(incompatible, b"")], raw=True)
    reader = formats.avro(schema(user, wide), registry=registry)
    running = Running(sources.kafka(topic, servers=server.servers, value=reader), errors=to("dead"))
    running.run()
    assert running.sink.rows == [{"user": "old", "count": 1}, {"user": "new", "count": 7}]
    (dead,) = running.dead.rows
    assert "not Avro of this schema" in str(dead)


def test_bad_messages_and_unknown_schemas_go_by_the_policy(
    server: KafkaServer, apicurio: RegistryServer
) -> None:
    topic, registry = new_topic(server), formats.registry(apicurio.url)
    known = post(apicurio, f"{topic}-value", '"long"')
    other = post(apicurio, f"{topic}-proto", PROTO, schemaType="PROTOBUF")
    good = framed(known, formats.avro("long").encoder("t")(2**53 + 1))
    bad = [b"", b"{}", good[:-1], good + b"x", framed(2**31, b"\x02"), framed(other, b"\x00"), None]
    produce(server, topic, [good, *bad, good], raw=True)
    made = sources.kafka(topic, servers=server.servers, value=formats.avro(registry=registry))
    running = Running(made, errors=to("dead"))
    running.run()
    assert running.sink.rows == [2**53 + 1] * 2
    told = [str(row) for row in running.dead.rows]
    assert len(told) == len(bad)
    parts = ["zero byte", "zero byte", "cut off", "1 bytes are left", f"schemas/ids/{2**31}"]
    for reason, part in zip(told, [*parts, "is PROTOBUF, not AVRO", "tombstone"], strict=True):
        assert part in reason, reason
    strict = Running(made)
    with pytest.raises(SourceError, match=f"{topic}/0, offset 1"):
        strict.run()


def test_a_schema_that_refers_to_others_is_read(
    server: KafkaServer, apicurio: RegistryServer, tmp_path: Path
) -> None:
    topic = new_topic(server)
    inner = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
    outer = {
        "type": "record",
        "name": "shop.Sale",
        "fields": [{"name": "paid", "type": {"type": "array", "items": "shop.Money"}}],
    }
    post(apicurio, f"{topic}-money", inner)
    refers = {"name": "shop.Money", "subject": f"{topic}-money", "version": 1}
    number = post(apicurio, f"{topic}-value", outer, references=[refers])
    produce(server, topic, [framed(number, b"\x04\x02\x04\x00")], raw=True)
    registry = formats.registry(apicurio.url)
    source = sources.kafka(topic, servers=server.servers, value=formats.avro(registry=registry))
    assert read_all(prepared(source, tmp_path)) == [{"paid": [{"cents": 1}, {"cents": 2}]}]


@pytest.mark.parametrize("how", ["text", "class"])
def test_protobuf_goes_from_topic_to_topic_as_it_is(
    server: KafkaServer, apicurio: RegistryServer, tmp_path: Path, how: str
) -> None:
    topic, registry = new_topic(server), formats.registry(apicurio.url)
    rows: list[dict[str, Any]] = [
        {"user": "a", "lines": [{"sku": "x", "count": 2**64 - 1}], "at": ROWS[0]["at"]},
        {"user": "", "lines": [], "at": None},
    ]
    given = {"message": "Order", "schema": PROTO}
    if how == "class":
        from headrace.formats.proto_schemas import message_class, of_text

        given = {"message": message_class(of_text(PROTO), "shop.Order")}
    written(server, topic, rows, formats.protobuf(**given, registry=registry))
    messages = [message.value() for message in consume(server, topic)]
    assert messages[0][5:7] == b"\x02\x02"  # the second message of its file
    for reader in (
        formats.protobuf(registry=registry),
        formats.protobuf(**given, registry=registry),
    ):
        running = Running(sources.kafka(topic, servers=server.servers, value=reader))
        running.run()
        assert running.sink.rows == rows


def test_a_registry_that_is_away_is_waited_for(
    server: KafkaServer, apicurio: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_client, "ANSWER_S", 0.5)
    topic = new_topic(server)
    # A schema that no test has asked for: what is known is not asked for again.
    own = {"type": "record", "name": "Away", "fields": [{"name": "n", "type": "long"}]}
    number = post(apicurio, f"{topic}-value", own)
    produce(server, topic, [framed(number, b"\x54")], raw=True)
    registry = formats.registry(apicurio.url)
    source = sources.kafka(topic, servers=server.servers, value=formats.avro(registry=registry))
    apicurio.process.hang()
    threading.Timer(4.0, apicurio.process.go_on).start()
    try:
        with pytest.raises(SourceUnavailable, match="does not answer"):
            source.decoding.value.decode(framed(number, b"\x54"))
        running, began = Running(source, errors=to("dead")), time.monotonic()
        waits = 0
        while not running.sink.rows and time.monotonic() - began < 30:
            try:
                running.run()
            except SourceUnavailable:
                waits += 1
                time.sleep(0.2)
    finally:
        apicurio.process.go_on()
    assert running.sink.rows == [{"n": 42}]
    assert waits > 0 and not running.dead.rows


def test_a_sink_whose_schema_is_not_registered_or_not_compatible_says_so(
    server: KafkaServer, apicurio: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_client, "FORGET_UNKNOWN_S", 0.0)
    topic, registry = new_topic(server), formats.registry(apicurio.url)
    with pytest.raises(SinkError, match="register=True"):
        written(server, topic, [1], formats.avro("long", registry=registry, register=False))
    with pytest.raises(SinkError, match="does not fit its avro schema"):
        written(server, topic, [1.5], formats.avro("long", registry=registry))
    written(server, topic, [1, None], formats.avro("long", registry=registry, register=False))
    values = [message.value() for message in consume(server, topic)]
    assert values[0][5:] == b"\x02" and values[1] is None
