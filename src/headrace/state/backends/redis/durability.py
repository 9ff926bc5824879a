"""What a Redis server promises of what it was sent, by its own settings (O4).

| settings | what an epoch's mark in the log means |
| --- | --- |
| `appendfsync always` | its cells are on the server's disk |
| `appendfsync everysec` or `no`, Redis 7.2 or newer | the same: `WAITAOF` waits for the disk |
| `appendfsync everysec` or `no`, older | refused, unless the URL says `durability=everysec` |
| `appendonly no` | refused, unless the URL says `durability=none` |

A server that has forgotten epochs of which the segments are deleted is recognised at the next
start, which is refused with both epochs. So a lower promise can cost a restore, never a wrong
answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis

from headrace.errors import InvalidPipeline, StoreError
from headrace.state.backends.server_url import ServerUrl

OPTIONS = {"timeout": "15s", "durability": "always"}
LEVELS = ("always", "everysec", "none")
WAITAOF_MS = 15_000


@dataclass(frozen=True)
class Durability:
    """What the server promises."""

    promise: str
    """In words, for people."""
    level: str
    """"always", "waitaof", "everysec" or "none"."""

    def sync(self, client: Any, marks: bytes, url: ServerUrl) -> None:
        """Returns when all that the server was sent before is as durable as it promises."""
        if self.level == "waitaof":
            pipeline = client.pipeline(transaction=False)
            # WAITAOF waits for what its own connection wrote. The file is written in order, so
            # this write covers all that came before it.
            pipeline.hincrby(marks, "syncs", 1)
            pipeline.execute_command("WAITAOF", 1, 0, WAITAOF_MS)
            if int(pipeline.execute()[1][0]) < 1:
                raise StoreError(f"{url.shown} has not synced its file in {WAITAOF_MS // 1000} s")
            return
        found = client.info("persistence")
        if self.level != "none" and not found.get("aof_enabled"):
            raise StoreError(
                f"the append-only file of {url.shown} was turned off while the pipeline runs: set "
                "appendonly yes again, and the pipeline goes on"
            )
        if self.level != "none" and found.get("aof_last_write_status") != "ok":
            raise StoreError(f"{url.shown} cannot write its append-only file (see its log)")
        if self.level == "always" and _setting(client, "appendfsync") not in (None, "always"):
            raise StoreError(
                f"the appendfsync of {url.shown} was changed while the pipeline runs: set it to "
                "always again, and the pipeline goes on"
            )


def read_durability(client: Any, url: ServerUrl) -> Durability:
    """The server's promise; InvalidPipeline if it is lower than the URL accepts."""
    accepted = url.options["durability"]
    if accepted not in LEVELS:
        raise InvalidPipeline(f"{url.shown}: durability is one of {', '.join(LEVELS)}")
    info = client.info()
    _require_a_single_master(info, url)
    _require_no_eviction(client, url)
    appends = bool(info.get("aof_enabled"))
    fsync = _setting(client, "appendfsync")
    version = tuple(int(part) for part in str(info["redis_version"]).split(".")[:2])
    if not appends:
        found = Durability("nothing: the server keeps no append-only file (appendonly no)", "none")
    elif fsync == "always":
        found = Durability("every write is on disk (appendfsync always)", "always")
    elif version >= (7, 2):
        found = Durability("a mark waits for the disk (WAITAOF)", "waitaof")
    else:
        said = f"appendfsync {fsync}" if fsync else "appendfsync cannot be read"
        found = Durability(f"the last seconds may be lost ({said}, no WAITAOF)", "everysec")
    order = {"waitaof": 0, **{level: i for i, level in enumerate(LEVELS)}}
    if order[found.level] > order[accepted]:
        raise InvalidPipeline(
            f"{url.shown} promises less than state must have: {found.promise}. Set appendonly yes "
            f"and appendfsync always there, or accept it with ?durability={found.level}: then a "
            "crash of the server may make the next start refuse its state, and need a backup"
        )
    return found


def _require_a_single_master(info: dict[str, Any], url: ServerUrl) -> None:
    if info.get("cluster_enabled"):
        raise InvalidPipeline(f"{url.shown} is part of a Redis cluster: a script writes one server")
    if info.get("role") != "master":
        raise InvalidPipeline(f"{url.shown} is a replica: name the master")


def _require_no_eviction(client: Any, url: ServerUrl) -> None:
    """A server that drops keys when its memory is full would drop state."""
    policy, limit = _setting(client, "maxmemory-policy"), _setting(client, "maxmemory")
    if policy is not None and policy.startswith("allkeys") and limit not in (None, "0"):
        raise InvalidPipeline(
            f"{url.shown} drops keys when its memory is full (maxmemory-policy {policy}); state "
            "needs noeviction"
        )


def _setting(client: Any, name: str) -> str | None:
    """A setting of the server; None where it does not let it be read."""
    try:
        found = client.config_get(name).get(name)
    except redis.ResponseError:
        return None
    return None if found is None else str(found)
