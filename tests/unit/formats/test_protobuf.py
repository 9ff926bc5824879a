"""`formats.protobuf` without a registry: values, evolution, and bytes that are no message."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace import formats
from headrace.errors import InvalidPipeline

pytest.importorskip("grpc_tools", reason="protobuf: grpcio-tools is not installed")

TEXT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
message First {}
message Order {
  enum Kind { UNKNOWN = 0; SALE = 1; }
  message Line { string sku = 1; sint64 count = 2; }
  string user = 1;
  int64 cents = 2;
  uint64 large = 3;
  optional double rate = 4;
  Kind kind = 5;
  repeated Line lines = 6;
  map<string, Line> by_name = 7;
  map<int32, bool> flags = 8;
  bytes raw = 9;
  google.protobuf.Timestamp at = 10;
  google.protobuf.Duration took = 11;
  google.protobuf.Int64Value maybe = 12;
  google.protobuf.Struct more = 13;
  oneof payment { string card = 14; int64 cash = 15; }
  Order before = 16;
  float small = 17;
  repeated google.protobuf.Int64Value each = 18;
}
"""
NOTHING: dict[str, Any] = {
    "user": "", "cents": 0, "large": 0, "rate": None, "kind": "UNKNOWN", "lines": [],
    "by_name": {}, "flags": {}, "raw": b"", "at": None, "took": None, "maybe": None,
    "more": None, "card": None, "cash": None, "before": None, "small": 0.0, "each": [],
}  # fmt: skip


@pytest.fixture(scope="module")
def order() -> Any:
    return pickle.loads(pickle.dumps(formats.protobuf("Order", schema=TEXT)))


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"user": "\N{GREEK SMALL LETTER PI}", "cents": 2**63 - 1, "large": 2**64 - 1},
        {"cents": -(2**63), "rate": 0.0, "kind": "SALE", "raw": b"\xff"},
        {"kind": 7},
        {"lines": [{"sku": "a", "count": -1}, {"sku": "", "count": 0}]},
        {"by_name": {"x": {"sku": "b", "count": 2}}, "flags": {-1: True, 2: False}},
        {"at": datetime(2026, 11, 18, 1, 2, 3, 4, UTC), "took": timedelta(seconds=-1.5)},
        {"at": datetime(1, 1, 1, tzinfo=UTC), "maybe": 0},
        {"more": {"a": [1.5, None, {"b": True}], "c": "x"}},
        {"cash": 0},
        {"each": [0, -1], "small": 0.5, "rate": float("inf"), "card": None},
        {"before": {**NOTHING, "user": "x"}},
    ],
)
def test_a_value_is_read_as_it_was_written(order: Any, value: dict[str, Any]) -> None:
    assert order.decode(order.encoder("t")(value)) == {**NOTHING, **value}


def test_times_fit_as_functions_produce_them(order: Any) -> None:
    produced = {"at": "2026-11-18T01:02:03Z", "took": "-PT1.5S"}
    found = order.decode(order.encoder("t")(produced))
    assert found["at"] == datetime(2026, 11, 18, 1, 2, 3, tzinfo=UTC)
    assert found["took"] == timedelta(seconds=-1.5)


@pytest.mark.parametrize(
    "text, seconds, nanos",
    [
        ("1970-01-01T00:00:01.123456789Z", 1, 123_456_789),
        ("1970-01-01T02:00:01,1234567+02:00", 1, 123_456_700),
        ("1969-12-31T23:59:59.999999999Z", -1, 999_999_999),
        ("1970-01-01T00:00:01.123456000000Z", 1, 123_456_000),
        ("1970-01-01T00:00:01.5Z", 1, 500_000_000),
    ],
)
def test_the_nanoseconds_of_a_text_are_written(
    order: Any, text: str, seconds: int, nanos: int
) -> None:
    from google.protobuf.timestamp_pb2 import Timestamp

    at = Timestamp(seconds=seconds, nanos=nanos).SerializeToString()
    assert order.encoder("t")({"at": text}) == b"\x52" + bytes([len(at)]) + at


def test_a_number_of_seconds_is_a_duration_if_it_has_whole_microseconds(order: Any) -> None:
    for seconds, micros in ((7, 7_000_000), (0.1 + 0.2, 300_000), (-1e9 - 0.1, -(10**15) - 10**5)):
        found = order.decode(order.encoder("t")({"took": seconds}))
        assert found["took"] == timedelta(microseconds=micros)


@pytest.mark.parametrize(
    "value, told",
    [
        ({"took": "soon"}, "took: 'soon' is no duration"),
        ({"took": "PT0.1234567S"}, "took: 'PT0.1234567S' is no duration to microseconds"),
        ({"took": 0.1234567}, "took: 0.1234567 seconds would be rounded"),
        ({"took": float("nan")}, "took: "),
        ({"at": "2026-11-18T01:02:03.1234567891Z"}, "at: .*it would be rounded"),
        ({"at": "2026-11-18T01:02:03+02:00:00.1234567"}, "at: .*it would be rounded"),
        ({"cents": 2**63}, "cents"),
        ({"cents": True}, "cents: it is a bool"),
        ({"cents": 1.0}, "cents: 1.0 is no integer"),
        ({"cents": "1"}, "cents"),
        ({"user": 5}, "user"),
        ({"usr": "x"}, "usr: shop.Order has no such field"),
        ({"kind": "GIFT"}, "kind: shop.Order.Kind has no 'GIFT'"),
        ({"lines": [{"sku": "a"}, {"count": "x"}]}, r"lines\[1\].count"),
        ({"lines": {}}, "lines: it is repeated"),
        ({"at": "2026-11-18T01:02:03"}, "at: a timestamp"),
        ({"more": {"a": 2**53 + 1}}, "more.a"),
        ({"card": "x", "cash": 1}, "cash: card is there, too"),
        ({"cents": None}, "cents: it has no `optional`"),
        ({"each": [1, None]}, r"each\[1\]: it is part of a list"),
        ({"small": 1e300}, "small: 1e.300 is no float"),
        ({"small": 2**24 + 1}, "small: 16777217 is no float"),
        ({"rate": 2**53 + 1}, "rate: 9007199254740993 is no double"),
        ({"user": b"x"}, "user: it is bytes"),
        ([], "a shop.Order is a dict"),
    ],
)
def test_a_row_that_does_not_fit_names_the_field(order: Any, value: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        order.encoder("t")(value)


@pytest.mark.parametrize("raw", [b"\x0a\x05ab", b"\xff\xff", b"\x0a\x01\xff"])
def test_bytes_that_are_no_message_have_a_reason(order: Any, raw: bytes) -> None:
    with pytest.raises(ValueError, match="not Protobuf of shop.Order"):
        order.decode(raw)


def test_a_message_that_is_nested_too_deeply_is_no_record_and_no_crash(order: Any) -> None:
    raw = b""
    for _ in range(5000):
        size, head = len(raw), bytearray()
        while size > 0x7F:
            head.append(size & 0x7F | 0x80)
            size >>= 7
        raw = b"\x82\x01" + bytes([*head, size]) + raw
    with pytest.raises(ValueError, match="not Protobuf of shop.Order"):
        order.decode(raw)


def test_older_and_newer_writers_are_read_by_the_numbers_of_fields() -> None:
    head = 'syntax = "proto3"; message M '
    old = formats.protobuf(schema=head + "{ int64 a = 1; string gone = 2; }")
    new = formats.protobuf(schema=head + "{ int64 a = 1; optional int64 b = 3; }")
    assert new.decode(old.encoder("t")({"a": 1, "gone": "x"})) == {"a": 1, "b": None}
    assert old.decode(new.encoder("t")({"a": 1, "b": 2})) == {"a": 1, "gone": ""}


def test_a_generated_class_is_taken_apart_so_that_tasks_need_no_generated_code() -> None:
    from google.protobuf.type_pb2 import Option

    format = formats.protobuf(Option)
    assert b"type_pb2" not in pickle.dumps(format)
    again = pickle.loads(pickle.dumps(format))
    value = {"name": "x", "value": {"type_url": "u", "value": b"1"}}
    assert again.decode(again.encoder("t")(value)) == value
    assert Option.FromString(again.encoder("t")(value)).name == "x"


@pytest.mark.parametrize(
    "given, told",
    [
        ({}, "a message, a schema or a registry"),
        ({"schema": "message {"}, "protoc refuses it"),
        ({"message": "Ordr", "schema": TEXT}, "has no message Ordr; it has First, Order"),
        ({"message": 5}, "a generated class"),
        ({"message": dict}, "DESCRIPTOR"),
        ({"schema": b"\xff\xff"}, "no set of file descriptors"),
    ],
)
def test_what_cannot_be_a_format_is_refused_at_once(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidPipeline, match=told):
        formats.protobuf(**given)
