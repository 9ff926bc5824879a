"""`headrace kafka send`: lines as they are, and what was sent before one that cannot be; `read`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.cli.first import kafka as module

kafka = pytest.importorskip("confluent_kafka", reason="kafka: confluent-kafka is not installed")


class Producer:
    """Takes messages of less than 100 bytes."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, bytes | None]] = []

    def produce(self, topic: str, data: bytes, key: bytes | None, on_delivery: Any) -> None:
        if len(data) > 100:
            error = kafka.KafkaError(kafka.KafkaError.MSG_SIZE_TOO_LARGE, "too large")
            raise kafka.KafkaException(error)
        self.sent.append((data, key))

    def flush(self, seconds: float) -> int:
        return 0


@pytest.mark.parametrize(
    ("lines", "options", "said", "sent"),
    [
        (b"a\n\nb\r\n", [], "2 messages sent to t.", [(b"a", None), (b"b", None)]),
        (b"caf\xe9\n", [], "1 message sent", [(b"caf\xe9", None)]),
        (b'{"k":"x"}\n{"k":7}\n', ["--key", "k"], "2 messages sent",
         [(b'{"k":"x"}', b"x"), (b'{"k":7}', b"7")]),
        (b'{"k":"x"}\n\xff\n', ["--key", "k"], r"line 2 is no JSON object with a field 'k': \xff. "
         "Before it, 1 message sent to t.", [(b'{"k":"x"}', b"x")]),
        (b'{"k":"\\ud800"}\n', ["--key", "k"], "line 1 is no JSON object with a field 'k'", []),
        (b"a\n" + b"x" * 101, [], "line 2: too large. Before it, 1 message sent", [(b"a", None)]),
    ],
)  # fmt: skip
def test_lines_become_messages(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lines: bytes,
    options: Any,
    said: str,
    sent: Any,
) -> None:
    producer = Producer()
    monkeypatch.setattr(module, "_require", lambda topic, servers: [0])
    monkeypatch.setattr(module, "_client", lambda *given, **config: producer)
    (tmp_path / "lines").write_bytes(lines)
    ran = CliRunner().invoke(module.kafka, ["send", "t", str(tmp_path / "lines"), *options])
    assert said in (ran.output + str(ran.exception or ""))
    assert producer.sent == sent


class Consumer:
    """Of a partition of which only the offsets 5 and 6 are left."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.at: int | None = None

    def assign(self, places: list[Any]) -> None:
        [place] = places
        self.at = place.offset
        if self.at == kafka.OFFSET_BEGINNING:
            self.at = 5
        elif self.at < 5:  # it is out of range
            self.at = 5 if self.config.get("auto.offset.reset") == "earliest" else 7

    def consume(self, count: int, seconds: float) -> list[Any]:
        found: list[Any] = [Received(b"%d" % offset) for offset in range(self.at or 0, 7)]
        self.at = 7
        return [*found, Received(None)]

    def close(self) -> None: ...


class Received:
    """A message, or (None) the end of its partition."""

    def __init__(self, value: bytes | None) -> None:
        self._value = value

    def value(self) -> bytes | None:
        return self._value

    def key(self) -> None: ...

    def partition(self) -> int:
        return 0

    def error(self) -> Any:
        return None if self._value else kafka.KafkaError(kafka.KafkaError._PARTITION_EOF)


def test_a_topic_is_read_from_the_first_message_that_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readers: list[Consumer] = []

    def client(kind: str, servers: str, **config: Any) -> Consumer:
        readers.append(Consumer(config))
        return readers[0]

    monkeypatch.setattr(module, "_require", lambda topic, servers: [0])
    monkeypatch.setattr(module, "_client", client)
    ran = CliRunner().invoke(module.kafka, ["read", "t"])
    assert (ran.exit_code, ran.output) == (0, "\t5\n\t6\n")
    assert readers[0].config["auto.offset.reset"] == "earliest"  # where some go while it reads
