"""`headrace kafka send`: lines as they are, and what was sent before one that cannot be."""

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
