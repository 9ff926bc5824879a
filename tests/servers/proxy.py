"""A proxy in front of an S3 server that does what networks and busy servers do.

Faults are data: a function looks at each request and says what happens to it.

- `pass`: forwarded and answered;
- `500`, `409 BODY`, ...: answered with that status and body, not forwarded;
- `lost`: forwarded, and its answer is lost: the connection is cut;
- `cut`: the connection is cut before the request is forwarded;
- `hang`: forwarded, but never answered;
- `lost 500`: forwarded, and answered with 500;
- `late`: not forwarded now but after the connection was cut: it lands late.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Fault = Callable[[str, str, int], str]
"""(method, path, number of the request) -> what happens."""


class Proxy:
    """Forwards to a port of 127.0.0.1, but for faults."""

    def __init__(self, target: int, late_s: float = 0.3, tls: ssl.SSLContext | None = None) -> None:
        self.fault: Fault = lambda method, path, number: "pass"
        self.keeps_metadata = True
        self.drops_condition = False
        self.seen: list[tuple[str, str, str]] = []
        """Method, path and fate of every request."""
        self._released = threading.Event()
        proxy, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with lock:
                    fate = proxy.fault(self.command, self.path, len(proxy.seen))
                    proxy.seen.append((self.command, self.path, fate))
                if fate in ("pass", "lost", "hang") or fate.startswith("lost "):
                    status, headers, data = self.forwarded(body)
                if fate == "pass":
                    self.answer(status, headers, data)
                elif fate == "hang":
                    proxy._released.wait(60)
                    self.close_connection = True
                elif fate == "late":
                    threading.Thread(target=self.later, args=(body,), daemon=True).start()
                    self.cut()
                elif fate in ("lost", "cut"):
                    self.cut()
                else:
                    code, _, text = fate.removeprefix("lost ").partition(" ")
                    self.answer(int(code), {}, text.encode())

            def later(self, body: bytes) -> None:
                time.sleep(late_s)
                self.forwarded(body)

            def forwarded(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
                connection = http.client.HTTPConnection("127.0.0.1", target, timeout=30)
                sent = {
                    name: value
                    for name, value in self.headers.items()
                    if (proxy.keeps_metadata or not name.lower().startswith("x-amz-meta-"))
                    and not (proxy.drops_condition and name.lower() == "if-none-match")
                }
                connection.request(self.command, self.path, body, sent)
                found = connection.getresponse()
                data = found.read()
                headers = {
                    name: value
                    for name, value in found.getheaders()
                    if name.lower() not in ("transfer-encoding", "connection", "keep-alive")
                }
                connection.close()
                return found.status, headers, data

            def answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
                self.send_response_only(status)
                lengths = [name for name in headers if name.lower() == "content-length"]
                for name, value in headers.items():
                    if name not in lengths or self.command == "HEAD":
                        self.send_header(name, value)
                if self.command != "HEAD":
                    self.send_header("Content-Length", str(len(data)))
                elif not lengths:
                    self.send_header("Content-Length", "0")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def cut(self) -> None:
                self.close_connection = True
                self.connection.close()

            do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = handle_any

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # Cut connections.

        self._server = Quiet(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
