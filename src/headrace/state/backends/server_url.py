"""URLs of state stores on servers: `redis://:password@host:6379/0?timeout=5s`, `hbase://host/table`.

What people see, and what the ledger records, is the URL without user and password (`shown`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.errors import InvalidPipeline

_DURATION = re.compile(r"(\d+)(ms|s|m)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}


@dataclass(frozen=True)
class ServerUrl:
    """A state store's URL in parts."""

    scheme: str
    servers: tuple[tuple[str, int], ...]
    place: str
    """The database, or the table."""
    options: Mapping[str, str]
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def shown(self) -> str:
        """The URL without user, password and options."""
        servers = ",".join(f"{host}:{port}" for host, port in self.servers)
        return f"{self.scheme}://{servers}/{self.place}"

    @property
    def timeout_s(self) -> float:
        said = self.options["timeout"]
        found = _DURATION.fullmatch(said)
        if found is None or not int(found[1]):
            raise InvalidPipeline(f"{self.shown}: timeout={said!r} is not a time such as 5s")
        return int(found[1]) * _SECONDS[found[2]]


def parse_server_url(
    url: str, *, port: int, place: str, several: bool, options: Mapping[str, str]
) -> ServerUrl:
    """A URL in parts. `port`, `place` and `options` are the defaults; others are refused.

    No message repeats the URL, which may contain a password.
    """
    scheme = url.partition(":")[0]
    try:
        parts = urlsplit(url)
        who, _, hosts = parts.netloc.rpartition("@")
        servers = tuple(_server(text, port) for text in hosts.split(","))
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise InvalidPipeline(f"state={scheme}://...: {_form(scheme, several)}") from None
    if parts.fragment or (len(servers) > 1 and not several):
        raise InvalidPipeline(f"state={scheme}://...: {_form(scheme, several)}")
    unknown = [name for name, _ in query if name not in options]
    if unknown:
        raise InvalidPipeline(
            f"state={scheme}://...: there is no option {unknown[0]!r}; there are "
            f"{', '.join(sorted(options))}"
        )
    user, _, password = who.partition(":")
    return ServerUrl(
        scheme,
        servers,
        unquote(parts.path.strip("/")) or place,
        {**options, **dict(query)},
        unquote(user) or None,
        unquote(password) or None,
    )


def _server(text: str, port: int) -> tuple[str, int]:
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?", text)
    if found is None:
        raise ValueError("not a host")
    return found[1].strip("[]"), int(found[2] or port)


def _form(scheme: str, several: bool) -> str:
    form = f"{scheme}://host:port" + (",host:port" if several else "")
    return f"the URL is not of the form {form}/{'table' if several else 'database'}?option=value"
