"""Spark, with state on a server: drivers and the server are killed; nothing is lost or doubled."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from tests.servers.state_servers import state_server
from tests.servers.test_lives_on_servers import Life, Places, check_all_once, numbered_lines

from headrace.bench.servers.redis_server import PASSWORD

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

EPOCH = 300


@pytest.mark.parametrize("kind", ["redis", "hbase"])
def test_kills_of_the_driver_and_of_the_server_lose_nothing(kind: str, tmp_path: Path) -> None:
    server = state_server(kind)
    places = Places(str(tmp_path))
    places.write(numbered_lines())
    if kind == "redis":
        url = server.url()
    else:
        url = server.url(f"t{uuid.uuid4().hex[:8]}", "?timeout=120s")

    first = Life("lives", places, "local[2]", EPOCH, url)
    for _ in range(3):
        assert first.next_epoch()
    first.kill()

    second = Life("lives", places, "local[2]", EPOCH, url)
    for _ in range(3):
        assert second.next_epoch()
    server.process.kill()
    server.restart()
    second.end()

    check_all_once(places.rows())
    for path in Path(places.checkpoint).rglob("*"):
        assert path.is_dir() or PASSWORD.encode() not in path.read_bytes(), path
