"""Redis and HBase for tests: one server of each for all tests of a process.

Redis is part of `make test`. HBase is for `make test-servers`: its jars are 117 MB, and each start
takes a large part of a minute.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import pytest

from headrace.bench.servers.hbase_server import hbase_server
from headrace.bench.servers.processes import CannotHave
from headrace.bench.servers.redis_server import redis_server

ALWAYS = "redis"
"""The server of `make test`."""

KINDS: dict[str, Callable[[], Any]] = {"redis": redis_server, "hbase": hbase_server}


def state_server(kind: str) -> Any:
    """A running server; skips if this run of tests leaves it out, or the machine cannot have it."""
    if kind not in os.environ.get("HEADRACE_STATE_SERVERS", ALWAYS).split(","):
        pytest.skip(f"{kind}: runs with `make test-servers`")
    found = _started(kind)
    if isinstance(found, CannotHave):
        pytest.skip(f"{kind}: {found}")
    return found


@functools.cache
def _started(kind: str) -> Any:
    try:
        return KINDS[kind]()
    except CannotHave as error:
        return error
