"""A schema registry, by the HTTP contract of Confluent's, which Apicurio and Karapace keep too.

Invariants:
- A schema's id stands for one schema forever, so it is asked for once per process.
- A registry that does not answer is an outage. That an id is not known is said by the registry
  itself (error code 40403), never concluded from a wrong address or a proxy's page.
- Secrets appear in no message and no `repr`, and are sent to the registry's own address only.
"""

from __future__ import annotations

import base64
import http.client
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.errors import HeadraceError, InvalidPipeline

ANSWER_S = 10.0
FORGET_UNKNOWN_S = 5.0
"""So long an id that the registry does not know is not asked for again."""
ANSWER_BYTES_MAX = 16 * 1024 * 1024
_HIDDEN = "***"
_UNKNOWN_CODES = (40401, 40402, 40403)
"""No such subject, no such version, no such schema."""
_AWAY = (408, 425, 429)
_MEDIA = "application/vnd.schemaregistry.v1+json"


class UnknownSchema(Exception):
    """The registry has no such schema."""


class Reference(msgspec.Struct, frozen=True):
    """A schema that another one names."""

    name: str
    subject: str
    version: int


class RegistrySchema(msgspec.Struct, frozen=True):
    """A schema as a registry has it."""

    schema: str
    type: str = msgspec.field(name="schemaType", default="AVRO")
    references: tuple[Reference, ...] = ()


class _Said(msgspec.Struct):
    error_code: int = 0
    message: str = ""


class _Id(msgspec.Struct):
    id: int


def registry(
    url: str,
    *,
    username: str | None = None,
    password: str | None = None,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Registry:
    """A schema registry: Confluent's, Karapace, or Apicurio (".../apis/ccompat/v7").

    - `username`, `password`: for basic authentication. `token`: for a bearer token. `headers`: sent
      with every request. None of their values is ever shown.

    Tasks ask it for schemas, so these values travel to them in Spark's own messages.
    """
    where = "formats.registry"
    parts = _parts(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidPipeline(f'{where} takes an address, "http://host:8081"')
    if parts.username or parts.password or parts.query or parts.fragment:
        raise InvalidPipeline(
            f"{where}: the address has no user, password or query; give username= and password=, "
            "or token="
        )
    if (username is None) != (password is None) or (username is not None and token is not None):
        raise InvalidPipeline(f"{where} takes username= and password=, or token=")
    sent = dict(headers or {})
    if username is not None:
        pair = base64.b64encode(f"{username}:{password}".encode()).decode()
        sent["Authorization"] = f"Basic {pair}"
    elif token is not None:
        sent["Authorization"] = f"Bearer {token}"
    for name, value in sent.items():
        if not all(str(text).isascii() and str(text).isprintable() for text in (name, value)):
            what = "token=" if name == "Authorization" else f"the header {name!r:.80}"
            raise InvalidPipeline(
                f"{where}: {what} is text without line breaks or special characters; what was "
                "read from a file often ends with a line break: use .strip()"
            )
    secrets = (password, token, *sent.values(), sent.get("Authorization", "").partition(" ")[2])
    return Registry(url.rstrip("/"), sent, tuple(s for s in secrets if s and len(s) > 2))


def _parts(url: str) -> urllib.parse.SplitResult | None:
    try:
        parts = urllib.parse.urlsplit(url)
        return parts if parts.port != 0 else None
    except (ValueError, AttributeError):  # a port that is none, or no text
        return None


class Registry:
    """Where a registry is, and what is sent with every request. It travels to tasks."""

    __slots__ = ("_headers", "_secrets", "url")

    def __init__(self, url: str, headers: Mapping[str, str], secrets: tuple[str, ...]) -> None:
        self.url = url
        self._headers = dict(headers)
        self._secrets = secrets

    def __repr__(self) -> str:
        return f"Registry({self.url})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Registry)
            and self.url == other.url
            and self._headers == other._headers
        )

    def __hash__(self) -> int:
        return hash((self.url, *sorted(self._headers.items())))

    def client(
        self, unavailable: type[HeadraceError], refused: type[HeadraceError]
    ) -> RegistryClient:
        """A client, which raises these errors; what clients learn is kept by the process."""
        return RegistryClient(self, unavailable, refused)

    def request(self, path: str, body: Any = None) -> urllib.request.Request:
        """A request to the registry."""
        return urllib.request.Request(
            f"{self.url}{path}",
            None if body is None else msgspec.json.encode(body),
            {"Accept": f"{_MEDIA}, application/json", "Content-Type": _MEDIA, **self._headers},
        )

    def shown(self, text: str) -> str:
        """A text without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return text


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer, not a way: secrets go to the registry's own address only."""

    def redirect_request(self, *args: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirects)
_known: dict[tuple[int, Registry, Any], Any] = {}
_unknown: dict[tuple[int, Registry, Any], tuple[float, str]] = {}
_lock = threading.Lock()


class RegistryClient:
    """Questions to a registry."""

    def __init__(
        self, where: Registry, unavailable: type[HeadraceError], refused: type[HeadraceError]
    ) -> None:
        self._where = where
        self._unavailable = unavailable
        self._refused = refused

    def schema(self, number: int) -> RegistrySchema:
        """The schema with this id. UnknownSchema if there is none."""
        return self._once(("id", number), f"/schemas/ids/{number}", RegistrySchema)

    def version(self, reference: Reference) -> RegistrySchema:
        """A schema that another one refers to."""
        subject = urllib.parse.quote(reference.subject, safe="")
        path = f"/subjects/{subject}/versions/{reference.version}"
        return self._once(("version", reference), path, RegistrySchema)

    def id_of(self, subject: str, kind: str, schema: str, *, register: bool) -> int:
        """The id of a schema under a subject; `register`: it is put there if it is not."""
        path = f"/subjects/{urllib.parse.quote(subject, safe='')}{'/versions' if register else ''}"
        body = {"schema": schema, "schemaType": kind}
        try:
            found = self._once(("schema", subject, kind, schema, register), path, _Id, body)
        except UnknownSchema as error:
            raise self._refused(
                f"{error}. Put the schema under the subject {subject}, or let the sink do it with "
                "register=True"
            ) from None
        return int(found.id)

    def _once(self, what: Any, path: str, answer: Any, body: Any = None) -> Any:
        place = (os.getpid(), self._where, what)
        with _lock:
            if place in _known:
                return _known[place]
            at, said = _unknown.get(place, (float("-inf"), ""))
        if time.monotonic() - at < FORGET_UNKNOWN_S:
            raise UnknownSchema(said)
        try:
            found = self._ask(path, answer, body)
        except UnknownSchema as error:
            with _lock:
                _unknown[place] = time.monotonic(), str(error)
            raise
        with _lock:
            return _known.setdefault(place, found)

    def _ask(self, path: str, answer: Any, body: Any) -> Any:
        where = f"the schema registry at {self._where.url}"
        try:
            with _opener.open(self._where.request(path, body), timeout=ANSWER_S) as response:
                data = response.read(ANSWER_BYTES_MAX)
        except urllib.error.HTTPError as error:
            raise self._answered(where, path, error) from None
        except (OSError, http.client.HTTPException) as error:
            said = self._where.shown(str(error)) or type(error).__name__
            raise self._unavailable(f"{where} does not answer: {said}") from None
        try:
            return msgspec.json.decode(data, type=answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._refused(
                f"{where} answers {path} with what is no answer of a registry ({error}): correct "
                "the address"
            ) from None

    def _answered(self, where: str, path: str, error: urllib.error.HTTPError) -> Exception:
        data = b""
        try:
            data = error.read(65_536)
            said = msgspec.json.decode(data, type=_Said)
        except (msgspec.DecodeError, UnicodeDecodeError, OSError, http.client.HTTPException):
            said = _Said(0, data[:200].decode("utf-8", "replace"))
        text = self._where.shown(f"{where}: {path}: {error.code} {said.message}".rstrip())
        if said.error_code in _UNKNOWN_CODES:
            # Without the server's own words, which differ from one registry to the next.
            return UnknownSchema(f"{where} has no {path.lstrip('/')}")
        if error.code >= 500 or error.code in _AWAY:
            return self._unavailable(text)
        if error.code in (401, 403):
            return self._refused(f"{text}. Correct username= and password=, or token=")
        return self._refused(text)
