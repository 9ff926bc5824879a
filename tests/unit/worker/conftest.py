"""A web server on this machine, for calls on a real wire."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

HANG_UP = "hang up"


class WebServer:
    """Counts what it is asked, and answers 200 or what a test has put into `answers`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bytes, str | None]] = []
        """Method, path, body and idempotency key of each request."""
        self.answers: list[int | str] = []
        """The statuses of the next answers; `HANG_UP` closes the connection without one."""
        numbers = itertools.count()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(b"")

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers["Content-Length"])))

            def _answer(self, body: bytes) -> None:
                key = self.headers.get("Idempotency-Key")
                server.asked.append((self.command, self.path, body, key))
                status = server.answers.pop(0) if server.answers else 200
                if status == HANG_UP:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                answer = json.dumps({"n": next(numbers)}).encode()
                self.send_response(int(status))
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *given: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def keys(self) -> list[str | None]:
        """The idempotency keys of all requests."""
        return [key for *_, key in self.asked]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def web() -> Iterator[WebServer]:
    server = WebServer()
    yield server
    server.close()
