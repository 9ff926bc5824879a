"""Which table of HBase a URL names, whether it can keep state, and what its refusals mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from headrace.errors import InvalidPipeline, StoreError
from headrace.state.backends.hbase.columns import FAMILY
from headrace.state.backends.hbase.messages import HBase_pb2
from headrace.state.backends.hbase.wire import HBaseRefusal
from headrace.state.backends.server_url import ServerUrl, parse_server_url

PORT = 16000
"""Of a master; region servers usually have 16020."""
OPTIONS = {"timeout": "30s", "durability": "fsync"}

_Given = TypeVar("_Given")


def new_family() -> Any:
    """The column family of a table that is made."""
    family = HBase_pb2.ColumnFamilySchema(name=FAMILY)
    for name, value in ((b"VERSIONS", b"1"), (b"DATA_BLOCK_ENCODING", b"FAST_DIFF")):
        family.attributes.add(first=name, second=value)
    return family


def parse_hbase_url(url: str) -> ServerUrl:
    """InvalidPipeline if the URL is not one of a table of HBase."""
    found = parse_server_url(url, port=PORT, place="", several=True, options=OPTIONS)
    if not found.place or found.place.count(":") > 1:
        raise InvalidPipeline(f"{found.shown}: name a table, hbase://host:port/[namespace:]table")
    if found.options["durability"] not in ("fsync", "flush"):
        raise InvalidPipeline(f"{found.shown}: durability is fsync or flush")
    if found.user or found.password:
        raise InvalidPipeline(f"{found.shown}: HBase takes no password; set HADOOP_USER_NAME")
    found.timeout_s  # noqa: B018  (refused now, not in the first task)
    return found


def require_a_fit_table(schema: Any, url: ServerUrl) -> None:
    families = {f.name: {a.first: a.second for a in f.attributes} for f in schema.column_families}
    if FAMILY not in families:
        raise InvalidPipeline(
            f"{url.shown}: the table has no column family {FAMILY.decode()!r}; name a table that "
            "does not exist, and it will be made"
        )
    said = families[FAMILY]
    if said.get(b"TTL", b"FOREVER") not in (b"FOREVER", b"2147483647"):
        raise InvalidPipeline(f"{url.shown}: the table has a TTL, so HBase would delete state")
    if said.get(b"NEW_VERSION_BEHAVIOR", b"false").lower() == b"true":
        raise InvalidPipeline(f"{url.shown}: the table has NEW_VERSION_BEHAVIOR, which is refused")


def explained(url: ServerUrl, act: Callable[[], _Given]) -> _Given:
    """The result of `act`; a StoreError where it may succeed later."""
    try:
        return act()
    except HBaseRefusal as error:
        if error.name in ("AccessDeniedException", "TableNotFoundException"):
            raise InvalidPipeline(f"{url.shown} refused: {error}") from error
        raise StoreError(f"the state store {url.shown} refused: {error}") from error
    except OSError as error:
        raise StoreError(
            f"the state store {url.shown} does not answer: {error}. The host is a master (port "
            f"{PORT}) or a region server (port 16020) of HBase"
        ) from error
