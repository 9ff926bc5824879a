"""Web requests, and what may be said of them.

An address, headers and a body may hold secrets: a token in the query, a password before
the host, a webhook's path. So errors, logs and dead letters name a request by its
method, host, port and the first part of its path; a checkpoint keeps a digest of it, and the
answer.
"""

from __future__ import annotations

import base64
import http.client
import urllib.error
import urllib.request
from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import msgspec

from headrace.causal.outside import Abandoned, Refusal, Try, Unreachable, Unusable
from headrace.model.services import Response

RESPONSE_BYTES_MAX = 16 << 20
HARMLESS_HEADERS = frozenset(
    (
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "cache-control",
        "content-language",
        "content-type",
        "pragma",
        "range",
        "user-agent",
    )
)
"""What follows a redirection to another host. All others may carry a secret, by any name."""

_AGAIN_LATER = {429, 502, 503, 504}
_CONFLICT, _UNAVAILABLE = 409, 503
_SECRET_CHARACTERS_MIN = 4
_PORTS = {"http": 80, "https": 443}
_TRY = "headrace_try"
"""The attribute by which a request tells its connection which try it belongs to."""

_response_decoder = msgspec.msgpack.Decoder(Response)


class Request(msgspec.Struct, frozen=True):
    """A web request."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None

    def what(self) -> str:
        """How errors name it: without its query, its password and the end of its path."""
        parts = _parts(self.url)
        segments = [segment for segment in parts.path.split("/") if segment]
        path = f"/{segments[0]}" if segments else ""
        return f"{self.method} {parts.scheme}://{_host(parts)}{path}" + (
            "/..." if len(segments) > 1 else ""
        )

    def hidden(self, text: str) -> str:
        """A text with whatever of this request may be a secret struck out."""
        parts = _parts(self.url)
        secrets = [self.url, parts.netloc, parts.query, parts.path, parts.fragment]
        secrets += [parts.username or "", parts.password or "", *parts.path.split("/")]
        secrets += [piece for field in parts.query.split("&") for piece in field.split("=", 1)]
        secrets += [piece for value in self.headers.values() for piece in (value, *value.split())]
        for secret in sorted(set(secrets), key=len, reverse=True):
            shown = secret in (parts.hostname, _host(parts))
            if len(secret) >= _SECRET_CHARACTERS_MIN and not shown:
                text = text.replace(secret, "***")
        return text


def check_address(url: str) -> None:
    """Refuses what is no address of the web, without telling it."""
    if _parts(url).scheme not in ("http", "https"):
        raise ValueError(
            f"ctx.http: this is not an address of http or https: it begins {url[:5]!r}"
        )


def fetch(request: Request, timeout: float, one: Try | None = None) -> bytes:
    """One web request; its response as bytes for `response`."""
    try:
        found, status = _fetched(request, timeout, one or Try())
    except (TimeoutError, Abandoned, Unusable):
        raise
    except Exception as error:
        # `from None`: the first error's text and traceback may hold what is hidden here.
        message = request.hidden(f"{type(error).__name__}: {error}")
        raise Unreachable(message) from None
    if status >= 400:
        # A server that refuses has done nothing; another that failed in the middle may have. A
        # conflict may be one with an earlier try of the same.
        refused = status == _UNAVAILABLE or (status < 500 and status != _CONFLICT)
        raise Refusal(found, in_doubt=not refused, later=status in _AGAIN_LATER)
    return found


def response(value: bytes) -> Response:
    """The response in what `fetch` gave."""
    return _response_decoder.decode(value)


def _fetched(request: Request, timeout: float, one: Try) -> tuple[bytes, int]:
    url, headers = _without_password(request.url, request.headers)
    made = urllib.request.Request(url, data=request.body, headers=headers, method=request.method)
    setattr(made, _TRY, one)
    opener = _following if request.method == "GET" else _staying
    try:
        answer = opener.open(made, timeout=timeout)
    except urllib.error.HTTPError as error:
        answer = error  # a status of 400 or more, or a redirection: an answer as well
    with answer:
        body = answer.read(RESPONSE_BYTES_MAX + 1)
        if len(body) > RESPONSE_BYTES_MAX:
            raise Unusable(f"the answer is larger than {RESPONSE_BYTES_MAX >> 20} MB")
        named = {name.lower(): value for name, value in answer.headers.items()}
        return msgspec.msgpack.encode(Response(answer.status, named, body)), answer.status


def _without_password(url: str, headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """`user:password@` before a host is sent as it is meant to be: in a header."""
    parts, sent = _parts(url), dict(headers)
    if "@" not in parts.netloc:
        return url, sent
    userinfo, _, host = parts.netloc.rpartition("@")
    named = {name.lower() for name in sent}
    if "authorization" not in named:
        coded = base64.b64encode(unquote(userinfo).encode()).decode()
        sent["Authorization"] = f"Basic {coded}"
    return urlunsplit(parts._replace(netloc=host)), sent


def _host(parts: SplitResult) -> str:
    """The host, and the port where one is given."""
    try:
        port = parts.port
    except ValueError:
        port = None
    return f"{parts.hostname or ''}{'' if port is None else f':{port}'}"


def _server(parts: SplitResult) -> tuple[str, str, int | None]:
    """What tells one server from another: another scheme or port is another host."""
    try:
        port = parts.port
    except ValueError:
        port = -1
    return parts.scheme, parts.hostname or "", port or _PORTS.get(parts.scheme)


def _parts(url: str) -> SplitResult:
    try:
        return urlsplit(url)
    except ValueError:
        return SplitResult("", "", "", "", "")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A POST is not sent on: where it went, it may have had its effect."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class _CarefulRedirect(urllib.request.HTTPRedirectHandler):
    """A GET is sent on within the web; what is meant for one host stays there."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        before, after = _parts(req.full_url), _parts(newurl)
        if after.scheme not in ("http", "https"):
            return None
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is None:
            return None
        setattr(made, _TRY, getattr(req, _TRY))
        if _server(before) != _server(after):
            for name in [n for n in made.headers if n.lower() not in HARMLESS_HEADERS]:
                del made.headers[name]
        return made


class _Connection(http.client.HTTPConnection):
    """Says when it is connected: what goes wrong before has not reached the server."""

    def __init__(self, *args: Any, one: Try, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._one = one

    def connect(self) -> None:
        super().connect()
        self._one.begin()


class _SecureConnection(_Connection, http.client.HTTPSConnection):
    """The same over TLS, where it is connected once both sides have agreed."""


class _Connecting(urllib.request.HTTPHandler):
    """Connects to web servers."""

    def http_open(self, req: Any) -> Any:
        return self.do_open(partial(_Connection, one=getattr(req, _TRY)), req)


class _ConnectingSecurely(urllib.request.HTTPSHandler):
    """The same over TLS."""

    def https_open(self, req: Any) -> Any:
        return self.do_open(partial(_SecureConnection, one=getattr(req, _TRY)), req)


def _opener(redirect: type[urllib.request.HTTPRedirectHandler]) -> urllib.request.OpenerDirector:
    """Opens http and https, and nothing else: no files, no FTP."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        _Connecting(),
        _ConnectingSecurely(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        redirect(),
    ):
        opener.add_handler(handler)
    return opener


_following = _opener(_CarefulRedirect)
_staying = _opener(_NoRedirect)
