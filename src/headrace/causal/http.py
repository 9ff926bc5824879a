"""`ctx.http`: web requests as questions."""

from __future__ import annotations

import json as jsons
from collections.abc import Callable, Mapping
from typing import Any

from headrace.causal import outside, web
from headrace.causal.questions import Asker, Question, digest, encode_plain
from headrace.model.services import GET, POST, CallOptions, Http, Response, call_options


class HttpService(Http):
    """`ctx.http` of one context."""

    def __init__(self, context: Asker) -> None:
        self._context = context

    def get(
        self, url: str, *, headers: Mapping[str, str] | None = None, **options: Any
    ) -> Response:
        checked = call_options(GET, where="ctx.http.get", **options)
        return self._send("GET", url, headers or {}, None, checked)

    def post(
        self,
        url: str,
        *,
        json: Any = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Response:
        if json is not None and body is not None:
            raise ValueError("ctx.http.post takes json= or body=, not both")
        sent = dict(headers or {})
        if body is None:
            body = jsons.dumps(json).encode()
            sent.setdefault("Content-Type", "application/json")
        checked = call_options(POST, where="ctx.http.post", **options)
        return self._send("POST", url, sent, body, checked)

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        options: CallOptions,
    ) -> Response:
        web.check_address(url)
        asked = _Request(web.Request(method, url, headers, body), options)
        return web.response(self._context.ask(asked))


class _Request(Question):
    """One web request, as a question."""

    __slots__ = ("_sent",)

    def __init__(self, sent: web.Request, options: CallOptions) -> None:
        # Headers are not part of the digest: with a renewed token it is still the same request.
        self.request = digest(encode_plain((sent.method, sent.url, sent.body)))
        self.what = sent.what()
        self.options = options
        self.repeats, self.sends_key = sent.method == "GET", True
        self._sent = sent

    def perform(self, key: Callable[[], str], one: outside.Try) -> bytes:
        sent = self._sent
        headers = {"Idempotency-Key": key(), **sent.headers}
        request = web.Request(sent.method, sent.url, headers, sent.body)
        return web.fetch(request, self.options.timeout_us / 1e6, one)
