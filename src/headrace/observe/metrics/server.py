"""A small web server beside a run: `/metrics` for Prometheus and `/healthz` for supervisors.

It listens on 127.0.0.1, answers only GET, and never waits for the run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import msgspec

from headrace.observe.local_server import LocalServer
from headrace.plan.progress import Status

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HEALTHY = ("running", "paused", "standby", "guard", "waiting")
"""Phases of a run that leads or watches. While it waits for an outage, a restart would not help."""


class Health(msgspec.Struct, frozen=True):
    """Whether a run is healthy, and why not."""

    healthy: bool
    pipeline: str
    phase: str
    epoch: int
    why: str = ""


class MetricsServer:
    """Serves until it is closed."""

    def __init__(
        self,
        port: int,
        text: Callable[[], bytes],
        status: Callable[[], Status],
    ) -> None:
        """`text` makes the metrics; `status` says how the run is."""

        class Handler(_Handler):
            answers = {"/metrics": lambda: (200, METRICS_TYPE, text())}

        Handler.answers["/healthz"] = self._health
        self._status = status
        self._server = LocalServer(port, Handler, "metrics", "--metrics-port")
        self.port = self._server.port
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="headrace-metrics", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def watch(self, status: Callable[[], Status]) -> None:
        """From now on, `/healthz` tells of this status."""
        self._status = status

    def _health(self) -> tuple[int, str, bytes]:
        found = health_of(self._status())
        code = 200 if found.healthy else 503
        return code, "application/json", msgspec.json.encode(found) + b"\n"

    def close(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def health_of(status: Status) -> Health:
    """Whether a run is healthy: it leads or watches, and its loop makes steps."""
    why = ""
    if status.error is not None:
        why = status.error
    elif status.stuck:
        why = "the loop has made no step for longer than stuck_after="
    elif status.phase not in HEALTHY:
        why = {"starting": "it has not taken over yet", "ended": "the run has ended"}.get(
            status.phase, f"the run is {status.phase}"
        )
    told = why
    if not why and status.outage is not None:
        told = f"the {status.outage.part} is unavailable: {status.outage.error}"
    return Health(not why, status.pipeline, status.phase, status.epoch, told)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET by the path."""

    answers: dict[str, Callable[[], tuple[int, str, bytes]]] = {}
    server_version = "headrace"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        """Answers."""
        answer = self.answers.get(self.path.partition("?")[0])
        code, kind, body = (404, "text/plain", b"/metrics or /healthz\n")
        if answer is not None:
            try:
                code, kind, body = answer()
            except Exception as error:
                code, kind = 500, "text/plain"
                body = f"{type(error).__name__}: {error}\n".encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: each scrape would be a line."""
