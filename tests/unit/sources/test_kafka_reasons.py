"""Why brokers cannot be reached: the client says it once, beside what it was asked."""

from __future__ import annotations

from typing import Any

import pytest

from headrace import kafka_client
from headrace.errors import SourceError, SourceUnavailable
from headrace.kafka_client import Brokers, ClientSettings

kafka = pytest.importorskip("confluent_kafka", reason="kafka: confluent-kafka is not installed")

SECRET = "hunter2-very-secret"


class Admin:
    """A client that cannot connect."""

    def __init__(self, error_cb: Any) -> None:
        self.error_cb = error_cb

    def poll(self, seconds: float) -> None:
        why = f"Authentication of {SECRET} failed: Invalid password (after 302ms in state AUTH_REQ)"
        self.error_cb(kafka.KafkaError(kafka.KafkaError._AUTHENTICATION, why))
        self.error_cb(kafka.KafkaError(kafka.KafkaError._ALL_BROKERS_DOWN, "1/1 are down"))


def test_the_reason_is_told_without_secrets_and_for_outages_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClientSettings, "client", lambda self, kind, *, error_cb: Admin(error_cb))
    monkeypatch.setattr(kafka_client, "_clients", {})
    settings = ClientSettings("127.0.0.1:1", {"sasl.password": SECRET}, (), "sources.kafka")
    brokers = Brokers(settings, SourceUnavailable, SourceError)

    def told(code: int) -> Exception:
        return brokers.error(kafka.KafkaException(kafka.KafkaError(code, "no")), "asking")

    away, refused = told(kafka.KafkaError._TIMED_OUT), told(kafka.KafkaError.INVALID_CONFIG)
    why = r". The client says: _AUTHENTICATION: Authentication of *** failed: Invalid password"
    assert str(away).endswith(why) and isinstance(away, SourceUnavailable)
    assert "The client says" not in str(refused) and isinstance(refused, SourceError)
