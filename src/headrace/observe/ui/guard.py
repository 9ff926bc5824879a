"""Who may talk to the page's server: this machine's own browser, from the page itself.

The server listens on 127.0.0.1, which keeps other machines out, but not other web pages in the same
browser. So:

1. the Host of every request must be this server's own address: another name that was made to point
   here (DNS rebinding) is refused;
2. a request that changes something is a POST of JSON, its Origin must be the page's own, and it
   must carry a token that only a page of this server can have read;
3. no header allows any other origin anything.

Pure: headers in, a reason to refuse out.
"""

from __future__ import annotations

import hmac
import secrets
import threading
from collections import deque
from collections.abc import Mapping

NAMES = ("127.0.0.1", "localhost")
TOKENS_MAX = 256
"""How many pages may be open; the oldest then has to be loaded again."""
TOKEN_HEADER = "X-Headrace-Token"

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Sent with every answer."""


class Guard:
    """Judges requests to a server at one port."""

    def __init__(self, port: int) -> None:
        self._hosts = {f"{name}:{port}" for name in NAMES}
        if port == 80:
            self._hosts |= set(NAMES)
        self._origins = {f"http://{host}" for host in self._hosts}
        self._tokens: deque[str] = deque(maxlen=TOKENS_MAX)
        self._lock = threading.Lock()

    def new_token(self) -> str:
        """A token for a page that is loaded now."""
        token = secrets.token_urlsafe(24)
        with self._lock:
            self._tokens.append(token)
        return token

    def refuses(self, headers: Mapping[str, str]) -> str:
        """Why a request is refused; empty if it is not."""
        host = headers.get("Host") or ""
        if host.lower() not in self._hosts:
            return f"the host {host[:100]!r} is not this server's"
        site = headers.get("Sec-Fetch-Site")
        if site not in (None, "same-origin", "none"):
            return "another site asks"
        return ""

    def refuses_change(self, headers: Mapping[str, str]) -> str:
        """Why a request that changes something is refused; empty if it is not."""
        if why := self.refuses(headers):
            return why
        origin = headers.get("Origin") or ""
        if origin.lower() not in self._origins:
            return f"the origin {origin[:100]!r} is not this page's"
        kind = (headers.get("Content-Type") or "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return "the request is not JSON"
        given = (headers.get(TOKEN_HEADER) or "").encode()
        with self._lock:
            known = list(self._tokens)
        if not any(hmac.compare_digest(given, token.encode()) for token in known):
            return "the page's token is missing or old: load the page again"
        return ""
