"""Stores on servers, for tests."""

from __future__ import annotations

import os
import signal
import time

import pytest
from tests.servers.kinds import KINDS, Server

from headrace.bench.servers.processes import CannotHave
from headrace.store.location import open_store
from headrace.store.store import Store

ALWAYS = "ministack"
"""The server of `make test`."""


def chosen() -> list[str]:
    """The servers that tests run on: one, or those that `make test-servers` names."""
    return os.environ.get("HEADRACE_SERVERS", ALWAYS).split(",")


def server_of(kind: str) -> Server:
    """A running server, with its credentials in the environment; skips if it cannot be had."""
    try:
        server = KINDS[kind]()
    except CannotHave as error:
        pytest.skip(f"{kind}: {error}")
    os.environ.update(server.environment)
    return server


def store_on(kind: str) -> Store:
    """An empty store on a server."""
    return open_store(server_of(kind).new_url())


_SAVES_S = {"azurite": 7.0}
"""Server -> how long after its last request it has saved what it confirmed."""


def kill_server(server: Server, client: int) -> None:
    """Kills a server, as a power loss would; `client` is the process of a driver.

    Azurite saves its index every five seconds. A kill loses what it has confirmed since, and no
    client can make that good: so the driver rests until all is saved.
    """
    rests_s = _SAVES_S.get(server.name, 0.0)
    if rests_s:
        os.kill(client, signal.SIGSTOP)
        time.sleep(rests_s)
    server.process.kill()
    if rests_s:
        os.kill(client, signal.SIGCONT)
