"""Stores on servers, for tests."""

from __future__ import annotations

import os

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
