"""The client of a schema registry, with a server that answers as no real one can be made to.

`tests/servers/test_kafka_formats.py` has a real registry. Here are refusals, outages, wrong
addresses and redirects, and messages as Confluent's own serializers wrote them.
"""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from headrace import formats
from headrace.errors import InvalidPipeline, SourceError, SourceUnavailable
from headrace.formats.registry_client import UnknownSchema

SECRET = "hunter2-very-secret"
AVRO = {
    "type": "record",
    "name": "O",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "b", "type": ["null", "string"], "default": None},
    ],
}
PROTO = (
    'syntax = "proto3"; package shop; message Other {} message Order { string user = 1; '
    "int64 cents = 2; message In { int32 x = 1; } In inner = 3; }"
)


class Answers:
    """What the server says, by path; and what it was asked."""

    def __init__(self) -> None:
        self.by_path: dict[str, tuple[int, bytes, dict[str, str]]] = {}
        self.asked: list[tuple[str, str | None]] = []
        answers = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                answers.asked.append((self.path, self.headers.get("Authorization")))
                status, body, headers = answers.by_path.get(self.path, (404, b"<html>", {}))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                """Says nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def say(self, number: int, status: int, body: Any, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.by_path[f"/schemas/ids/{number}"] = status, data, headers


@pytest.fixture
def answers() -> Iterator[Answers]:
    made = Answers()
    yield made
    made.server.shutdown()
    made.server.server_close()


def client(answers: Answers, **more: str) -> Any:
    return formats.registry(answers.url, **more).client(SourceUnavailable, SourceError)


def test_a_schema_is_asked_for_once_and_an_unknown_one_not_for_every_message(
    answers: Answers,
) -> None:
    answers.say(1, 200, {"schema": '"long"'})
    answers.say(2, 404, {"error_code": 40403, "message": "Schema not found"})
    for _ in range(3):
        assert client(answers).schema(1).schema == '"long"'
        with pytest.raises(UnknownSchema, match="has no schemas/ids/2"):
            client(answers).schema(2)
    assert [path for path, _ in answers.asked] == ["/schemas/ids/1", "/schemas/ids/2"]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_registry_in_trouble_is_an_outage(answers: Answers, status: int) -> None:
    answers.say(1, status, {"error_code": status * 100 + 1, "message": "busy"})
    with pytest.raises(SourceUnavailable, match=f"{status} busy"):
        client(answers).schema(1)


@pytest.mark.parametrize(
    "status, body",
    [(404, b"<html>not here</html>"), (401, b""), (403, b"{}"), (302, b""), (200, b"<html>")],
)
def test_what_a_registry_would_not_say_is_refused_and_no_schema_counts_as_unknown(
    answers: Answers, status: int, body: bytes
) -> None:
    answers.say(1, status, body, Location="http://127.0.0.1:1/elsewhere")
    with pytest.raises(SourceError, match=answers.url):
        client(answers).schema(1)


def test_nobody_there_is_an_outage() -> None:
    gone = Answers()
    gone.server.server_close()
    with pytest.raises(SourceUnavailable, match="does not answer"):
        client(gone).schema(1)


def test_secrets_are_sent_to_the_registry_alone_and_never_shown(answers: Answers) -> None:
    answers.say(1, 403, {"message": f"no: {SECRET} is wrong"})
    answers.say(2, 302, b"", Location=f"{answers.url}/schemas/ids/3")
    for given in ({"token": SECRET}, {"username": "me", "password": SECRET}):
        where = formats.registry(answers.url, **given)
        told = [repr(where), repr(formats.avro(registry=where))]
        for number in (1, 2):
            with pytest.raises(SourceError) as refused:
                where.client(SourceUnavailable, SourceError).schema(number)
            told.append(str(refused.value))
        assert SECRET not in "".join(told)
        assert pickle.loads(pickle.dumps(where)) == where
    paths = {path for path, _ in answers.asked}
    assert "/schemas/ids/3" not in paths
    assert {sent.split()[0] for _, sent in answers.asked if sent} == {"Bearer", "Basic"}


@pytest.mark.parametrize(
    "url, more",
    [
        ("registry:8081", {}),
        ("ftp://registry", {}),
        (f"http://me:{SECRET}@registry", {}),
        (f"http://registry?token={SECRET}", {}),
        ("http://registry", {"username": "me"}),
        ("http://registry", {"username": "me", "password": SECRET, "token": SECRET}),
    ],
)
def test_a_wrong_address_is_refused_without_showing_what_it_hides(
    url: str, more: dict[str, str]
) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        formats.registry(url, **more)
    assert SECRET not in str(refused.value)


def test_messages_of_confluents_own_serializers_are_read(answers: Answers) -> None:
    """The bytes are those of confluent-kafka 2.11.1: AvroSerializer, ProtobufSerializer."""
    answers.say(3, 200, {"schema": json.dumps(AVRO)})
    answers.say(4, 200, {"schema": PROTO, "schemaType": "PROTOBUF"})
    registry = formats.registry(answers.url)
    pytest.importorskip("fastavro", reason="avro: fastavro is not installed")
    avro = bytes.fromhex("0000000003808080808040020278")
    assert formats.avro(registry=registry).decode(avro) == {"a": 2**40, "b": "x"}
    pytest.importorskip("grpc_tools", reason="protobuf: grpcio-tools is not installed")
    order = bytes.fromhex("000000000402020a017510051a020803")
    inner = bytes.fromhex("00000000040402000803")
    format = formats.protobuf(registry=registry)
    assert format.decode(order) == {"user": "u", "cents": 5, "inner": {"x": 3}}
    assert format.decode(inner) == {"x": 3}
    with pytest.raises(ValueError, match="is AVRO, not PROTOBUF"):
        format.decode(b"\0\0\0\0\x03\0")


@pytest.mark.parametrize(
    "schema, told",
    [
        ('{"type": "recrod"}', "cannot be used"),
        ("{", "cannot be used"),
        ("[" * 5000 + "]" * 5000, "cannot be used"),
    ],
)
def test_a_schema_that_cannot_be_used_is_the_reason_of_its_messages(
    answers: Answers, schema: str, told: str
) -> None:
    answers.say(9, 200, {"schema": schema})
    format = formats.avro(registry=formats.registry(answers.url))
    for _ in range(2):
        with pytest.raises(ValueError, match=told):
            format.decode(b"\0\0\0\0\x09\0")


@pytest.mark.parametrize(
    "given",
    [
        {"token": f"{SECRET}\n"},
        {"headers": {"X-Key": f"{SECRET}\r\n"}},
        {"token": f"\u20ac{SECRET}"},
    ],
)
def test_a_secret_that_cannot_be_sent_is_refused_at_once_and_not_shown(given: Any) -> None:
    with pytest.raises(InvalidPipeline, match=r"without line breaks.*strip") as refused:
        formats.registry("http://registry:8081", **given)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("url", ["http://registry:80a1", "http://registry:99999", "registry", 8081])
def test_what_is_no_address_is_refused_at_once(url: Any) -> None:
    with pytest.raises(InvalidPipeline, match="takes an address"):
        formats.registry(url)
