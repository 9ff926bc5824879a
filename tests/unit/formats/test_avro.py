"""`formats.avro` without a registry: values, resolution, and bytes that are no message."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from headrace import formats
from headrace.errors import InvalidPipeline
from headrace.formats.avro_guard import EMPTY_ITEMS_MAX
from headrace.model.values.codec import NESTED_MAX

pytest.importorskip("fastavro", reason="avro: fastavro is not installed")

NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


def record(*fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields]}


def named(name: str, kind: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "x", "type": kind}]}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def there_and_back(schema: Any, value: Any) -> Any:
    format = pickle.loads(pickle.dumps(formats.avro(schema)))
    return format.decode(format.encoder("t")(value))


@pytest.mark.parametrize(
    "schema, value",
    [
        ("null", None),
        ("long", 2**63 - 1),
        ("long", -(2**63)),
        ("double", float("inf")),
        ("bytes", b"\x00\xff"),
        ("string", "\N{GREEK SMALL LETTER PI}\0"),
        ({"type": "array", "items": ["null", "long"]}, [1, None, 2**53 + 1]),
        ({"type": "map", "values": {"type": "array", "items": "string"}}, {"a": [], "b": ["x"]}),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
        (record(("a", ["null", "string"]), ("b", "boolean")), {"a": None, "b": True}),
        (logical("long", "timestamp-millis"), datetime(2026, 11, 18, 1, 2, 3, 4000, UTC)),
        (logical("long", "timestamp-micros"), datetime(1, 1, 1, tzinfo=UTC)),
        (logical("long", "timestamp-nanos"), 2**63 - 1),
        (logical("long", "local-timestamp-micros"), datetime(2026, 3, 29, 2, 30)),
        (logical("int", "date"), date(9999, 12, 31)),
        (logical("int", "time-millis"), time(23, 59, 59, 999000)),
        (logical("bytes", "decimal", precision=38, scale=2), Decimal("-123456789012345678.90")),
        (logical("string", "uuid"), UUID("fe37f7bd-6a70-4ac4-8de2-f7e8f3f54b87")),
        (NODE, {"next": {"next": {"next": None}}}),
        (["double", "long"], 2**60 + 1),
        (["float", "double"], 0.1),
        (["null", "double", logical("long", "timestamp-micros")], datetime(2026, 1, 1, tzinfo=UTC)),
        ([named("A", "double"), named("B", "long")], {"x": 2**60 + 1}),
        (["bytes", {"type": "map", "values": ["null", "double", "long"]}], {"a": 2**53 + 1}),
        (["null", NODE, "string"], {"next": {"next": None}}),
    ],
)
def test_a_value_is_read_as_it_was_written(schema: Any, value: Any) -> None:
    found = there_and_back(schema, value)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    "schema, text, value",
    [
        (logical("bytes", "decimal", precision=9, scale=2), "1.50", Decimal("1.50")),
        (logical("bytes", "decimal", precision=9, scale=2), 7, Decimal("7.00")),
        (logical("bytes", "decimal", precision=9, scale=2), "1234567.89", Decimal("1234567.89")),
        (logical("bytes", "decimal", precision=9, scale=2), "0e999999999", Decimal("0.00")),
        (logical("int", "date"), "2026-11-18", date(2026, 11, 18)),
        (logical("long", "time-micros"), "01:02:03.000004", time(1, 2, 3, 4)),
        (
            logical("long", "timestamp-micros"),
            "2026-11-18T01:02:03+01:00",
            datetime(2026, 11, 18, 0, 2, 3, tzinfo=UTC),
        ),
        (["null", logical("bytes", "decimal", precision=9, scale=2)], "1.5", Decimal("1.50")),
        (["null", logical("bytes", "decimal", precision=9, scale=2)], None, None),
        ([logical("bytes", "decimal", precision=9, scale=2), "string"], "1_0.5", "1_0.5"),
        ([logical("long", "time-micros"), "string"], "12:30:00+02:00", "12:30:00+02:00"),
        (logical("long", "time-micros"), "01:02:03.000004000", time(1, 2, 3, 4)),
        (
            logical("long", "local-timestamp-micros"),
            "2026-11-18T01:02",
            datetime(2026, 11, 18, 1, 2),
        ),
        (
            {"type": "array", "items": record(("d", logical("int", "date")))},
            [{"d": "2026-11-18"}],
            [{"d": date(2026, 11, 18)}],
        ),
    ],
)
def test_texts_of_decimals_and_times_fit_as_functions_produce_them(
    schema: Any, text: Any, value: Any
) -> None:
    assert there_and_back(schema, text) == value


@pytest.mark.parametrize(
    "schema, value",
    [
        ("long", 2**63),
        ("long", 1.5),
        ("long", True),
        ("int", 2**31),
        ("string", 5),
        (record(("a", "long")), {}),
        (record(("a", "long")), {"a": 1, "b": 2}),
        (record(("a", "long")), [1]),
        (logical("bytes", "decimal", precision=9, scale=2), "1.555"),
        (logical("long", "timestamp-micros"), "2026-11-18T01:02:03"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"),
        (["null", "string"], 7),
        ("double", 2**53 + 1),
        ("float", 2**24 + 1),
        ("float", 1e300),
        (logical("bytes", "decimal", precision=9, scale=2), "NaN"),
        (logical("long", "timestamp-millis"), "2026-11-18T01:02:03.000004Z"),
        (logical("int", "time-millis"), "01:02:03.000004"),
        (logical("int", "date"), datetime(2026, 11, 18, 5, tzinfo=UTC)),
        (logical("string", "uuid"), "no uuid"),
        (logical("long", "timestamp-micros"), "2026-11-18T12:30:00.123456789Z"),
        (logical("long", "timestamp-millis"), "2026-11-18T12:30:00.123000999Z"),
        (logical("long", "local-timestamp-micros"), "2026-11-18T12:30:00.1234567"),
        (logical("long", "local-timestamp-micros"), "2026-11-18T12:30:00+02:00"),
        (logical("long", "local-timestamp-millis"), datetime(2026, 11, 18, tzinfo=UTC)),
        (logical("long", "time-micros"), "12:30:00.1234567"),
        (logical("long", "time-micros"), "12:30:00+02:00"),
        (logical("int", "time-millis"), time(12, 30, tzinfo=UTC)),
        (logical("bytes", "decimal", precision=9, scale=2), "1_0.5"),
        (logical("bytes", "decimal", precision=9, scale=2), "\N{FULLWIDTH DIGIT ONE}"),
        (logical("bytes", "decimal", precision=9, scale=2), " 1"),
        (logical("bytes", "decimal", precision=9, scale=2), "12345678"),
        (logical("bytes", "decimal", precision=9, scale=2), "123e6"),
        (logical("bytes", "decimal", precision=9, scale=2), "1e999999999"),
        (logical("fixed", "decimal", size=4, precision=9, scale=2) | {"name": "F"}, 12345678),
    ],
)
def test_a_row_that_does_not_fit_is_refused_not_rounded(schema: Any, value: Any) -> None:
    with pytest.raises(ValueError):
        formats.avro(schema).encoder("t")(value)


def test_a_row_may_leave_out_what_has_a_default() -> None:
    field = {"name": "b", "type": ["null", "long"], "default": None}
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, field]}
    assert there_and_back(schema, {"a": 1}) == {"a": 1, "b": None}


@pytest.mark.parametrize(
    "raw", [b"", b"\x02", b"\x02\x02a\x00", b"\xff" * 20, b"\x02\x0aabc", b"\x02\x02\xff"]
)
def test_bytes_that_are_no_message_have_a_reason(raw: bytes) -> None:
    format = formats.avro(record(("n", "long"), ("s", "string")))
    with pytest.raises(ValueError, match=r"not Avro of this schema: ."):
        format.decode(raw)


def test_a_time_that_python_cannot_hold_has_a_reason() -> None:
    raw = formats.avro("long").encoder("t")(2**63 - 1)
    with pytest.raises(ValueError, match="not Avro of this schema"):
        formats.avro(logical("long", "timestamp-millis")).decode(raw)


@pytest.mark.parametrize("depth", [NESTED_MAX, 100_000, 1_000_000])
def test_a_message_that_is_nested_too_deeply_is_no_record_and_no_crash(depth: int) -> None:
    with pytest.raises(ValueError, match=f"nested more than {NESTED_MAX} deep"):
        formats.avro(NODE).decode(b"\x02" * depth + b"\x00")


def test_a_message_at_the_limit_of_nesting_is_read() -> None:
    found = formats.avro(NODE).decode(b"\x02" * (NESTED_MAX - 1) + b"\x00")
    for _ in range(NESTED_MAX - 1):
        found = found["next"]
    assert found == {"next": None}


def test_a_message_that_claims_endless_empty_items_is_no_record() -> None:
    format = formats.avro({"type": "array", "items": "null"})
    assert format.decode(format.encoder("t")([None] * 3)) == [None] * 3
    huge = formats.avro("long").encoder("t")(EMPTY_ITEMS_MAX + 1)
    with pytest.raises(ValueError, match="claims to have"):
        format.decode(huge + b"\x00")


@pytest.mark.parametrize(
    "given, told",
    [
        ({}, "a schema, a registry, or both"),
        ({"schema": {"type": "recrod"}}, "no schema of Avro"),
        ({"schema": object()}, "no schema of Avro"),
        ({"schema": "long", "registry": "http://r"}, "formats.registry"),
    ],
)
def test_what_cannot_be_a_format_is_refused_at_once(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidPipeline, match=told):
        formats.avro(**given)
