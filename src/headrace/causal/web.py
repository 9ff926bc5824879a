"""Web requests, and what messages may reveal about them.

An address, headers and a body may contain secrets: a token in the query, a password before the
host, the path of a webhook. So errors, logs and dead letters name a request only by its method,
host, port and the first part of its path. A checkpoint keeps a digest of the request, and the
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
"""Headers that are sent to another host after a redirect. Any other may contain a secret."""

_AGAIN_LATER = {429, 502, 503, 504}
_CONFLICT, _UNAVAILABLE = 409, 503
_SECRET_CHARACTERS_MIN = 4
_PORTS = {"http": 80, "https": 443}
_TRY = "headrace_try"
"""The attribute of a request that holds its `Try`, for the connection."""

_response_decoder = msgspec.msgpack.Decoder(Response)


class Request(msgspec.Struct, frozen=True):
    """A web request."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None

    def what(self) -> str:
        """The name of the request in errors, without query, password and the end of its path."""
        parts = _parts(self.url)
        segments = [segment for segment in parts.path.split("/") if segment]
        path = f"/{segments[0]}" if segments else ""
        return f"{self.method} {parts.scheme}://{_host(parts)}{path}" + (
            "/..." if len(segments) > 1 else ""
        )

    def hidden(self, text: str) -> str:
        """A text in which everything that may be a secret of this request is removed."""
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
    """Refuses an address that is not a web address. The error does not show the address."""
    if _parts(url).scheme not in ("http", "https"):
        raise ValueError(
            f"ctx.http: this is not an address of http or https: it begins {url[:5]!r}"
        )


def fetch(request: Request, timeout: float, one: Try | None = None) -> bytes:
    """Makes one web request; returns its response as bytes, to be decoded by `response`."""
    try:
        found, status = _fetched(request, timeout, one or Try())
    except (TimeoutError, Abandoned, Unusable):
        raise
    except Exception as error:
        # `from None`: the text and traceback of the first error may contain the secrets.
        message = request.hidden(f"{type(error).__name__}: {error}")
        raise Unreachable(message) from None
    if status >= 400:
        # A server that refused the request has done nothing. A server that failed while it
        # processed the request may have had an effect. A conflict may be with an earlier try.
        refused = status == _UNAVAILABLE or (status < 500 and status != _CONFLICT)
        raise Refusal(found, in_doubt=not refused, later=status in _AGAIN_LATER)
    return found


def response(value: bytes) -> Response:
    """The response from the bytes of `fetch`."""
    return _response_decoder.decode(value)


def _fetched(request: Request, timeout: float, one: Try) -> tuple[bytes, int]:
    url, headers = _without_password(request.url, request.headers)
    made = urllib.request.Request(url, data=request.body, headers=headers, method=request.method)
    setattr(made, _TRY, one)
    opener = _following if request.method == "GET" else _staying
    try:
        answer = opener.open(made, timeout=timeout)
    except urllib.error.HTTPError as error:
        answer = error  # a status of 400 or more, or a redirect: this is an answer too
    with answer:
        body = answer.read(RESPONSE_BYTES_MAX + 1)
        if len(body) > RESPONSE_BYTES_MAX:
            raise Unusable(f"the answer is larger than {RESPONSE_BYTES_MAX >> 20} MB")
        named = {name.lower(): value for name, value in answer.headers.items()}
        return msgspec.msgpack.encode(Response(answer.status, named, body)), answer.status


def _without_password(url: str, headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Moves `user:password@` from the address to the header where it belongs."""
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
    """(scheme, host, port): what identifies a server."""
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
    """A POST is not redirected: the first server may have processed it."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class _CarefulRedirect(urllib.request.HTTPRedirectHandler):
    """A GET follows redirects to web addresses. Headers for one host are not sent to another."""

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
    """Reports when it is connected: an error before that means the server was not reached."""

    def __init__(self, *args: Any, one: Try, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._one = one

    def connect(self) -> None:
        super().connect()
        self._one.begin()


class _SecureConnection(_Connection, http.client.HTTPSConnection):
    """The same over TLS: it is connected after the handshake."""


class _Connecting(urllib.request.HTTPHandler):
    """Opens http addresses with `_Connection`."""

    def http_open(self, req: Any) -> Any:
        return self.do_open(partial(_Connection, one=getattr(req, _TRY)), req)


class _ConnectingSecurely(urllib.request.HTTPSHandler):
    """Opens https addresses with `_SecureConnection`."""

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
