"""What a Redis server promises, looked at with each sync; and values that others have written."""

from __future__ import annotations

from typing import Any

import pytest

redis = pytest.importorskip("redis")

from headrace.errors import CorruptCheckpoint, StoreError  # noqa: E402
from headrace.state.backends.redis.backend import (  # noqa: E402
    RedisBackend,
    _cell,
    parse_redis_url,
)
from headrace.state.backends.redis.durability import Durability, read_durability  # noqa: E402

URL = parse_redis_url("redis://host:6379/0?durability=everysec")


class Server:
    """What a client is told by a server with these settings."""

    def __init__(self, appendonly: bool = True, appendfsync: str = "always") -> None:
        self.appendonly, self.appendfsync = appendonly, appendfsync

    def info(self, section: str = "") -> dict[str, Any]:
        return {
            "aof_enabled": int(self.appendonly),
            "aof_last_write_status": "ok",
            "role": "master",
            "redis_version": "7.0.1",
        }

    def config_get(self, name: str) -> dict[str, str]:
        return {"appendfsync": self.appendfsync} if name == "appendfsync" else {}


@pytest.mark.parametrize("appendfsync", ["always", "everysec"])
def test_an_append_only_file_that_was_turned_off_is_no_sync(appendfsync: str) -> None:
    server = Server(appendfsync=appendfsync)
    found = read_durability(server, URL)
    assert found.level == appendfsync
    found.sync(server, b"marks", URL)
    server.appendonly = False
    with pytest.raises(StoreError, match="append-only file of redis://host:6379/0 was turned off"):
        found.sync(server, b"marks", URL)


def test_a_server_that_promised_nothing_may_go_on_without_a_file() -> None:
    Durability("nothing", "none").sync(Server(appendonly=False), b"marks", URL)


def test_a_lower_appendfsync_is_noticed() -> None:
    found, server = Durability("on disk", "always"), Server()
    server.appendfsync = "no"
    with pytest.raises(StoreError, match="appendfsync of redis://host:6379/0 was changed"):
        found.sync(server, b"marks", URL)


def test_values_that_others_have_written_are_damage_and_no_outage() -> None:
    backend = RedisBackend("redis://host:6379/0", "c1")

    def refused() -> None:
        raise redis.ResponseError("WRONGTYPE Operation against a key holding the wrong kind")

    with pytest.raises(CorruptCheckpoint, match="redis://host:6379/0 has another kind of value"):
        backend._asked(refused)
    with pytest.raises(CorruptCheckpoint, match="b'ok', which Headrace has not written"):
        _cell(b"ok")
