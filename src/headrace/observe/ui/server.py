"""The server of the page: the standard library's, on 127.0.0.1, one thread per request."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

from headrace.errors import HeadraceError
from headrace.observe.local_server import LocalServer
from headrace.observe.text import json_text
from headrace.observe.ui.answers import Answers, NoSuchPipeline
from headrace.observe.ui.guard import HEADERS, Guard

PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/draw.js": ("draw.js", "text/javascript; charset=utf-8"),
    "/views.js": ("views.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
BODY_MAX = 10_000
TOKEN_PLACE = "__TOKEN__"


class UiServer:
    """Serves the page until it is closed."""

    def __init__(
        self, checkpoints: Sequence[str], port: int = 0, *, read_only: bool = False
    ) -> None:
        answers = Answers(checkpoints, read_only=read_only)
        self.answers = answers

        class Handler(_Handler):
            pass

        self._server = LocalServer(port, Handler, "the page", "--port")
        self.port = self._server.port
        Handler.answers, Handler.guard = answers, Guard(self.port)
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.port}/"

    def serve(self) -> None:
        """Serves in this thread."""
        self._server.serve_forever(poll_interval=0.2)

    def __enter__(self) -> UiServer:
        self._thread = threading.Thread(target=self.serve, name="headrace-ui", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self.close()

    def close(self) -> None:
        """Gives the port back."""
        self._server.server_close()
        if self._thread is not None:
            self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    answers: Answers
    guard: Guard
    protocol_version = "HTTP/1.1"
    server_version = "headrace"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        """Files of the page, and data."""
        if why := self.guard.refuses(self.headers):  # type: ignore[arg-type]
            self._send(403, {"error": why})
            return
        path, _, query = self.path.partition("?")
        if path in PAGES:
            self._page(*PAGES[path])
            return
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        parts = path.strip("/").split("/")
        answers = self.answers
        if parts == ["api", "pipelines"]:
            self._answer(answers.pipelines)
        elif len(parts) in (3, 4) and parts[:2] == ["api", "pipeline"] and _is_number(parts[2]):
            number, what = int(parts[2]), parts[3] if len(parts) == 4 else ""
            computation = asked.get("computation", "")
            if what == "":
                self._answer(lambda: answers.pipeline(number))
            elif what == "keys":
                self._answer(lambda: answers.keys(number, computation))
            elif what == "state":
                self._answer(lambda: answers.state(number, computation, asked.get("key", "")))
            else:
                self._send(404, {"error": "there is nothing here"})
        else:
            self._send(404, {"error": "there is nothing here"})

    def do_POST(self) -> None:
        """A request to a pipeline."""
        length = self.headers.get("Content-Length") or ""
        size = int(length) if _is_number(length) else BODY_MAX + 1
        body = self.rfile.read(size) if size <= BODY_MAX else b""
        self.close_connection = self.close_connection or size > BODY_MAX
        if why := self.guard.refuses_change(self.headers):  # type: ignore[arg-type]
            self._send(403, {"error": why})
            return
        parts = self.path.partition("?")[0].strip("/").split("/")
        if len(parts) != 4 or parts[:2] != ["api", "pipeline"] or parts[3] != "ask":
            self._send(404, {"error": "there is nothing here"})
            return
        try:
            request = json.loads(body)
        except (ValueError, RecursionError):
            request = None
        if not isinstance(request, dict) or not _is_number(parts[2]):
            self._send(400, {"error": "the request is not an object of JSON"})
            return
        self._answer(lambda: self.answers.ask(int(parts[2]), request))

    def _page(self, name: str, kind: str) -> None:
        text = files(__package__).joinpath("page", name).read_text(encoding="utf-8")
        if name == "index.html":
            text = text.replace(TOKEN_PLACE, self.guard.new_token())
        self._reply(200, kind, text.encode())

    def _answer(self, make: Callable[[], Any]) -> None:
        try:
            found = make()
        except NoSuchPipeline as error:
            self._send(404, {"error": str(error)})
        except (HeadraceError, ValueError) as error:
            self._send(409, {"error": str(error)})
        except Exception as error:
            self._send(500, {"error": f"{type(error).__name__}: {error}"})
        else:
            self._send(200, found)

    def _send(self, code: int, found: Any) -> None:
        self._reply(code, "application/json", json_text(found).encode())

    def _reply(self, code: int, kind: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10
