"""A web server on 127.0.0.1 for figures of a run: one thread per request, of the standard library.

A peer that goes away in the middle of a request is no error: nothing is said about it.
"""

from __future__ import annotations

import logging
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headrace.errors import HeadraceError

_logger = logging.getLogger("headrace")


class LocalServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1."""

    daemon_threads = True

    def __init__(
        self, port: int, handler: type[BaseHTTPRequestHandler], what: str, option: str
    ) -> None:
        try:
            super().__init__(("127.0.0.1", port), handler)
        except OSError as error:
            raise HeadraceError(
                f"{what} cannot be shown at 127.0.0.1:{port}: {error.strerror or error}; choose "
                f"another {option}"
            ) from error
        self.port = int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Notes an error of the server, not that a peer has gone away."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            _logger.warning("a request to 127.0.0.1:%s failed: %r", self.port, error)
