"""What is secret in a request reaches the server, and no message, log, letter or checkpoint."""

from __future__ import annotations

import base64
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from tests.unit.pipelines import at, one

from headrace import Computation, HeadraceError, to
from headrace.causal import web
from headrace.testing import Harness

SECRETS = ["s3cretpass", "t0kenquery", "h3aderkey", "w3bhookpath", "b0dysecret", "Authorization"]
BODY = {"pin": "b0dysecret"}
HEADERS = {"Authorization": "Bearer h3aderkey", "X-Api-Key": "h3aderkey"}


class Server:
    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.redirect_to = ""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.seen.append((self.path, dict(self.headers)))
                if outer.redirect_to and self.path.startswith("/moved"):
                    self.send_response(302)
                    self.send_header("Location", outer.redirect_to)
                else:
                    self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_POST = do_GET

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    found = (Server(), Server())
    yield found
    for server in found:
        server.server.shutdown()
        server.server.server_close()


def _clean(*texts: str) -> None:
    for text in texts:
        for secret in SECRETS:
            assert secret not in text, f"{secret!r} is in {text!r}"


class Ask(Computation):
    """Asks with secrets everywhere, at a port where nobody listens or with a bad address."""

    def __init__(self, url: str, method: str) -> None:
        self.url, self.method = url, method

    def process_record(self, record: Any, ctx: Any) -> None:
        if self.method == "get":
            ctx.http.get(self.url, headers=HEADERS, retries=0)
        else:
            ctx.http.post(self.url, json=BODY, headers=HEADERS)


BAD_ADDRESSES = [
    "http://u:s3cretpass@127.0.0.1:9/hook/w3bhookpath?token=t0kenquery",
    "http://u:s3cretpass@127.0.0.1:x9/hook/w3bhookpath?token=t0kenquery",
    "http://u:s3cretpass@[::1/hook/w3bhookpath?token=t0kenquery",
    "http://127.0.0.1:9/hook/w3bhookpath\n?token=t0kenquery",
    "htt://u:s3cretpass@host/w3bhookpath?token=t0kenquery",
]


@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize("url", BAD_ADDRESSES)
def test_a_request_that_fails_tells_no_secret_anywhere(
    url: str, method: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    pipeline = one(Ask(url, method), errors=to("dead"))
    with Harness(pipeline) as h:
        h.send("in", at(1))
        (letter,) = h.read("dead")
        _clean(str(letter))
        store = h._runtime.store
        _clean(*(data.decode("latin-1") for data in store.files.values()), *store.files)
    with pytest.raises(HeadraceError) as caught:
        with Harness(one(Ask(url, method))) as h:
            h.send("in", at(1))
    _clean(str(caught.value), caplog.text, *capfd.readouterr())


def test_secrets_reach_the_server_and_the_checkpoint_keeps_a_digest(
    servers: tuple[Server, Server],
) -> None:
    server, _ = servers
    url = f"http://u:s3cretpass@{server.host}/hook/w3bhookpath?token=t0kenquery"
    for method in ("get", "post"):
        with Harness(one(Ask(url, method)), twice=False) as h:
            h.send("in", at(1))
            h.settle()
            store = h._runtime.store
            _clean(*(data.decode("latin-1") for data in store.files.values()), *store.files)
        path, headers = server.seen[-1]
        assert path == "/hook/w3bhookpath?token=t0kenquery"
        assert headers["Authorization"] == "Bearer h3aderkey"


def test_a_password_in_an_address_is_sent_as_a_header(servers: tuple[Server, Server]) -> None:
    server, _ = servers
    web.fetch(web.Request("GET", f"http://u:p%40ss@{server.host}/a", {}), 5)
    path, headers = server.seen[-1]
    coded = base64.b64encode(b"u:p@ss").decode()
    assert (path, headers["Authorization"]) == ("/a", f"Basic {coded}")
    assert "@" not in headers["Host"]


def test_a_redirection_to_another_host_does_not_take_secrets_along(
    servers: tuple[Server, Server],
) -> None:
    first, other = servers
    first.redirect_to = f"http://{other.host}/there"
    web.fetch(web.Request("GET", f"http://{first.host}/moved", dict(HEADERS)), 5)
    path, headers = other.seen[-1]
    assert path == "/there" and "Authorization" not in headers
    first.redirect_to = f"http://{first.host}/here"
    web.fetch(web.Request("GET", f"http://{first.host}/moved", dict(HEADERS)), 5)
    assert first.seen[-1][1]["Authorization"] == "Bearer h3aderkey"


def test_a_redirection_to_another_host_takes_only_harmless_headers_along(
    servers: tuple[Server, Server],
) -> None:
    first, other = servers
    sent = {"X-Api-Key": "k", "Private-Token": "t", "X-Anything": "s", "Cookie": "c=1"}
    harmless = {"Accept": "text/plain", "User-Agent": "me", "Accept-Language": "de"}
    first.redirect_to = f"http://{other.host}/there"
    web.fetch(web.Request("GET", f"http://{first.host}/moved", {**sent, **harmless}), 5)
    headers = other.seen[-1][1]
    assert not {name.lower() for name in sent} & {name.lower() for name in headers}
    assert harmless.items() <= dict(headers.items()).items()
    # There and back: what was left behind stays left behind.
    other.redirect_to = f"http://{first.host}/back"
    first.redirect_to = f"http://{other.host}/moved"
    web.fetch(web.Request("GET", f"http://{first.host}/moved", {**sent, **harmless}), 5)
    path, headers = first.seen[-1]
    assert path == "/back" and "X-Api-Key" not in headers


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("http://a/", "http://a:80/x", True),
        ("https://A/", "https://a:443", True),
        ("http://a/", "https://a/", False),
        ("http://a/", "http://a:8080/", False),
        ("http://a/", "http://b/", False),
        ("http://a/", "http://a.b/", False),
    ],
)
def test_another_scheme_or_port_is_another_host(one: str, other: str, same: bool) -> None:
    assert (web._server(web._parts(one)) == web._server(web._parts(other))) is same


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,x"])
def test_a_redirection_out_of_the_web_is_not_followed(
    target: str, servers: tuple[Server, Server]
) -> None:
    server, _ = servers
    server.redirect_to = target
    try:
        found = web.response(web.fetch(web.Request("GET", f"http://{server.host}/moved", {}), 5))
    except Exception as error:
        assert "root:" not in str(error)
    else:
        assert found.status == 302 and not found.body


def test_wrong_options_tell_no_address() -> None:
    class Wrong(Computation):
        def process_record(self, record: Any, ctx: Any) -> None:
            ctx.http.get(BAD_ADDRESSES[0], log="never")

    with pytest.raises(HeadraceError) as caught:
        with Harness(one(Wrong)) as h:
            h.send("in", at(1))
    _clean(str(caught.value))


def test_what_a_request_is_called_tells_host_port_and_the_beginning_of_its_path() -> None:
    url = "https://u:s3cretpass@example.org:8443/services/T0/w3bhookpath?x=t0kenquery#frag"
    assert web.Request("GET", url, {}).what() == "GET https://example.org:8443/services/..."
    assert web.Request("GET", "http://example.org", {}).what() == "GET http://example.org"
    with_port = "http://ada:secret@example.org:8080/a?b"
    assert web.Request("GET", with_port, {}).what() == "GET http://example.org:8080/a"
    assert web.Request("GET", "http://example.org:x/a", {}).what() == "GET http://example.org/a"
