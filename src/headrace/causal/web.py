"""Web requests, and what may be said of them.

An address, headers and a body may hold secrets: a token in the query, a password before
the host, a webhook's path. So errors, logs and dead letters name a request by its
method, host, port and the first part of its path; a checkpoint keeps a digest of it, and the
answer.
"""

from __future__ import annotations

import base64
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

import msgspec

from headrace.causal.outside import Unfinished, Unreachable
from headrace.model.services import Response

RESPONSE_BYTES_MAX = 16 << 20
SECRET_HEADERS = ("authorization", "cookie", "proxy-authorization")
"""Meant for one host: they do not follow a redirection to another."""

_AGAIN_LATER = {429, 502, 503, 504}
_SECRET_CHARACTERS_MIN = 4

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


def fetch(request: Request, timeout: float) -> bytes:
    """One web request; its response as bytes for `response`."""
    try:
        found, status = _fetched(request, timeout)
    except TimeoutError:
        raise
    except Exception as error:
        # `from None`: the first error's text and traceback may hold what is hidden here.
        message = request.hidden(f"{type(error).__name__}: {error}")
        raise Unreachable(message) from None
    if status in _AGAIN_LATER:
        raise Unfinished(found)
    return found


def response(value: bytes) -> Response:
    """The response in what `fetch` gave."""
    return _response_decoder.decode(value)


def _fetched(request: Request, timeout: float) -> tuple[bytes, int]:
    url, headers = _without_password(request.url, request.headers)
    made = urllib.request.Request(url, data=request.body, headers=headers, method=request.method)
    opener = _following if request.method == "GET" else _staying
    try:
        answer = opener.open(made, timeout=timeout)
    except urllib.error.HTTPError as error:
        answer = error  # a status of 400 or more, or a redirection: an answer as well
    with answer:
        body = answer.read(RESPONSE_BYTES_MAX + 1)
        if len(body) > RESPONSE_BYTES_MAX:
            raise ValueError(f"the answer is larger than {RESPONSE_BYTES_MAX >> 20} MB")
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
        if made is not None and (before.scheme, before.netloc) != (after.scheme, after.netloc):
            for name in [n for n in made.headers if n.lower() in SECRET_HEADERS]:
                del made.headers[name]
        return made


def _opener(redirect: type[urllib.request.HTTPRedirectHandler]) -> urllib.request.OpenerDirector:
    """Opens http and https, and nothing else: no files, no FTP."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        redirect(),
    ):
        opener.add_handler(handler)
    return opener


_following = _opener(_CarefulRedirect)
_staying = _opener(_NoRedirect)
