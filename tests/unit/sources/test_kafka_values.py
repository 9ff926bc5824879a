"""What `sources.kafka` and `sinks.kafka` do without a broker: options, secrets, values."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace import sinks, sources
from headrace.errors import InvalidPipeline, SinkError
from headrace.kafka_client import ClientSettings
from headrace.model.source import Timing
from headrace.model.values.codec import NESTED_MAX
from headrace.model.values.rows import Rows
from headrace.sinks import Part
from headrace.sinks.kafka.messages import Message, dealt, load_messages
from headrace.sources.kafka.layout import place_of, split_of
from headrace.sources.kafka.values import Decoding
from headrace.worker.reader import stamp

pytest.importorskip("confluent_kafka", reason="kafka: confluent-kafka is not installed")


class Sent:
    """A message as the client gives it."""

    def __init__(self, offset: int, value: bytes | None, key: bytes | None = None) -> None:
        self._offset, self._value, self._key = offset, value, key

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> bytes | None:
        return self._key

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000 + self._offset

    def headers(self) -> None:
        return None


def read(values: list[bytes | None], base: int = 0, **options: Any) -> Any:
    given = {"value": "json", "key": "text", "columns": {}, "tombstones": "reject", **options}
    messages = [Sent(2 * number, value, b"k") for number, value in enumerate(values)]
    return Decoding(**given).reading(messages, base, True)


def test_offsets_are_positions_and_times_are_those_of_messages() -> None:
    reading = read([b"1", b'{"a": [2]}'], base=100)
    assert reading.values == [1, {"a": [2]}]
    assert reading.positions.tolist() == [100, 102]
    assert reading.timestamps.tolist() == [1_000_000, 1_002_000]


@pytest.mark.parametrize(
    ("millis", "reason"),
    [
        (0, None),
        (253_402_300_799_999, None),
        (253_402_300_800_000, "after the year 9999"),
        (1_700_000_000_000_000_000, "after the year 9999"),  # nanoseconds; a product overflows
        (2**63 // 1000 + 1, "after the year 9999"),
        (2**64 // 1000 + 1, "after the year 9999"),  # its product looks like 1970
        (2**63 - 1, "after the year 9999"),
        (-1, "the timestamp -1000 is before 1970"),  # the message has none
        (-5000, "the timestamp -5000000 is before 1970"),
        (-(2**64) // 1000 + 1_700_000_000_000, "before 1970"),
        (-(2**63), "before 1970"),
    ],
)
def test_a_message_whose_time_is_none_is_rejected(
    monkeypatch: pytest.MonkeyPatch, millis: int, reason: str | None
) -> None:
    monkeypatch.setattr(Sent, "timestamp", lambda self: (1, millis))
    rows, _, rejected = stamp(read([b"1"]), Timing(), 0)
    if reason is None:
        assert rows.timestamps.tolist() == [millis * 1000]
    else:
        assert len(rows) == 0 and reason in rejected[0].reason


def test_what_is_no_record_is_rejected_with_its_place_and_the_others_are_kept() -> None:
    reading = read([b"1", b"{", None, b"[" * 300 + b"]" * 300, b"\xff", b"5"], base=10)
    assert reading.values == [1, 5]
    assert reading.positions.tolist() == [10, 20]
    assert reading.timestamps.tolist() == [1_000_000, 1_010_000]
    told = [(each.position, each.reason) for each in reading.rejected]
    assert [position for position, _ in told] == [12, 14, 16, 18]
    for (_, reason), part in zip(told, ["not JSON", "tombstone", "nested more than", "not UTF-8"]):
        assert part in reason
        assert reason.startswith("orders/3, offset ")


@pytest.mark.parametrize("beside", [b"1", b'"{"', b"{}", b"[\n{}]", b'{"a":\n{}}'])
def test_a_deep_record_is_found_whatever_lies_beside_it(beside: bytes) -> None:
    deep = NESTED_MAX + 1
    for value in (b"[" * deep + b"]" * deep, b'{"a":' * deep + b"1" + b"}" * deep):
        for values in ([value, *[beside] * 200], [*[beside] * 200, value]):
            reading = read(list(values))
            assert len(reading.values) == 200
            assert len(reading.rejected) == 1


def test_the_digest_depends_on_keys_values_and_offsets() -> None:
    same = read([b"1", b"2"]).digest
    assert read([b"1", b"2"]).digest == same
    others = [read([b"12", b""]).digest, read([b"1"]).digest, read([b"1", b"3"]).digest]
    assert len({same, *others}) == 4


@pytest.mark.parametrize("tombstones, values", [("keep", [1, None]), ("skip", [1])])
def test_tombstones_mean_what_was_asked_for(tombstones: str, values: list[Any]) -> None:
    assert read([b"1", None], tombstones=tombstones).values == values


def test_columns_are_added_and_other_values_become_a_field() -> None:
    columns = {"key": "who", "offset": "offset", "partition": "p"}
    reading = read([b'{"n": 1}', b"7"], columns=columns)
    assert reading.values == [
        {"n": 1, "who": "k", "offset": 0, "p": 3},
        {"value": 7, "who": "k", "offset": 2, "p": 3},
    ]


def test_a_split_names_its_topic_and_partition() -> None:
    assert place_of(split_of(("a.b-c_d", 12))) == ("a.b-c_d", 12)


def test_options_are_never_shown() -> None:
    settings = ClientSettings("b:1", {"sasl.password": "hunter2", "client.id": "me"}, (), "test")
    assert repr(settings) == "ClientSettings(b:1, options: client.id, sasl.password)"
    assert settings.said("no: hunter2 is wrong for me") == "no: *** is wrong for me"
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert b"hunter2" not in pickle.dumps(
        sinks.kafka("t", servers="b:1", options={"sasl.password": "hunter2"})
    )


@pytest.mark.parametrize(
    "options, told",
    [
        ({"servers": ""}, "servers= is"),
        ({"servers": "user:secret@b:1"}, "without a scheme"),
        ({"start": "soon"}, '"earliest", "latest"'),
        ({"start": {0: -1}}, "offsets are numbers"),
        ({"stop": "earliest"}, '"latest"'),
        ({"value": "avro!"}, '"bytes", "text", "json"'),
        ({"columns": ["kee"]}, "did you mean 'key'"),
        ({"columns": {"key": "a", "offset": "a"}}, "one name"),
        ({"tombstones": "bury"}, "tombstones="),
        ({"options": {"group.id": "mine"}}, "sets 'group.id' itself"),
        ({"timestmap": "at"}, "timestmap"),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(
    options: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidPipeline) as refused:
        sources.kafka("t", **{"servers": "b:1", **options})
    assert told in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "options, told",
    [
        ({"parallel": 0}, "parallel= is 1 to 64"),
        ({"value": "xml"}, "value= is one of"),
        ({"options": {"transactional.id": "mine"}}, "sets 'transactional.id' itself"),
    ],
)
def test_wrong_options_of_a_sink_are_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidPipeline, match=told):
        sinks.kafka("t", **{"servers": "b:1", **options})


def test_rows_become_the_same_messages_on_every_copy_of_the_sink() -> None:
    sink = sinks.kafka("t", servers="b:1", key=("a", "b"))
    rows = Rows.of([{"a": 1, "b": "x"}, {"a": None, "b": float("nan")}], [5_000, 2**53])
    data = sink.encode(rows)
    assert pickle.loads(pickle.dumps(sink)).encode(rows) == data
    found = load_messages(Part("Count/0", "digest", lambda: data))
    assert found == [
        Message(b'[1,"x"]', b'{"a":1,"b":"x"}', 5),
        Message(b"[null,null]", b'{"a":null,"b":null}', 2**53 // 1000),
    ]
    assert sink.encode(Rows.empty()) == b""


def test_none_is_a_tombstone_and_the_text_null_is_not() -> None:
    data = sinks.kafka("t", servers="b:1").encode(Rows.of([None, "null", float("nan")], [0] * 3))
    found = load_messages(Part("Count/0", "digest", lambda: data))
    assert [message.value for message in found] == [None, b'"null"', b"null"]


def test_a_row_that_is_too_large_names_the_limit() -> None:
    sink = sinks.kafka("t", servers="b:1", options={"message.max.bytes": 2000})
    with pytest.raises(SinkError, match="message at most 2,000"):
        sink.encode(Rows.of(["x" * 1600], [0]))


def test_producers_share_messages_by_key_and_keep_their_order() -> None:
    messages = [Message(b"k%d" % (n % 7), b"%d" % n, n) for n in range(100)]
    shares = dealt(messages, 3)
    assert sorted(m.time_ms for share in shares for m in share) == list(range(100))
    for share in shares:
        assert [m.time_ms for m in share] == sorted(m.time_ms for m in share)
    owners = {m.key: {i for i, share in enumerate(shares) if m in share} for m in messages}
    assert all(len(found) == 1 for found in owners.values())


@pytest.mark.parametrize("name", ["message.max.bytes", "transaction.timeout.ms"])
def test_options_that_are_numbers_are_checked_at_once(name: str) -> None:
    with pytest.raises(InvalidPipeline, match=f"{name} is a whole number"):
        sinks.kafka("orders", servers="127.0.0.1:1", options={name: "one"})


@pytest.mark.parametrize(
    "given, told",
    [
        ({"value": lambda row: row["x"]}, "function of value= raises KeyError: 'x': "),
        ({"key": lambda row: row["x"]}, "function of key= raises KeyError: 'x': "),
        ({"key": lambda row: 1 / 0}, "function of key= raises ZeroDivisionError"),
        ({"key": "x"}, "has no key: there is no column 'x'"),
    ],
)
def test_a_function_that_raises_is_named_with_its_row(given: Any, told: str) -> None:
    sink = sinks.kafka("orders", servers="127.0.0.1:1", **given)
    with pytest.raises(SinkError, match=f"a row for the topic orders.*{told}"):
        sink.encode(Rows.of([{"a": 1}], [0]))


def test_timestamp_is_a_choice_and_no_column() -> None:
    with pytest.raises(InvalidPipeline, match="timestamp= is True or False, not 'at'"):
        sinks.kafka("orders", servers="127.0.0.1:1", timestamp="at")  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:Discarding nonzero nanoseconds")
@pytest.mark.parametrize(
    ("options", "is_cut"),
    [
        ({}, True),
        ({"key": "n"}, True),
        ({"value": lambda row: "x", "key": "v"}, True),
        ({"value": lambda row: "x", "key": "n"}, False),
        ({"value": lambda row: "x"}, False),
    ],
)
def test_nanoseconds_of_arrow_columns_are_not_cut_off(options: Any, is_cut: bool) -> None:
    sink = sinks.kafka("t", servers="b:1", **options)
    for nanos in (1000, 1001):
        batch = pa.RecordBatch.from_pydict({"n": [1], "v": pa.array([nanos], pa.timestamp("ns"))})
        rows = Rows(np.zeros(1, np.int64), columns=batch)
        if is_cut and nanos == 1001:
            with pytest.raises(SinkError, match="column 'v' .* sinks.kafka keeps microseconds"):
                sink.encode(rows)
        else:
            assert sink.encode(rows)
