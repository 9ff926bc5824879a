"""What a server's refusal means, as one sentence for people.

Servers answer with long texts, and some repeat parts of the signed request. Of an answer only its
status, its code and a shortened, cleaned message are shown; errors of the client are never chained
to ours, so a traceback does not show them either.

This module knows texts of errors. It does not know stores.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

from headrace.store.url import CREDENTIALS_BELONG, OPTIONS, StoreUrl

BUCKET = "bucket"
"""The bucket or container does not exist."""
CREDENTIALS = "credentials"
PERMISSION = "permission"
REGION = "region"
CLOCK = "clock"
ENDPOINT = "endpoint"
TLS = "tls"
BUSY = "busy"
TIME_OUT = "time-out"
OTHER = "other"

_STATUS = re.compile(r"(?:status code|status|HTTP error)[^0-9]{0,12}([1-5]\d\d)\b")
_CODE = re.compile(r"<Code>\s*([A-Za-z0-9_.]+)\s*</Code>|\"code\"\s*:\s*\"([A-Za-z0-9_.]+)\"")
_MESSAGE = re.compile(r"<Message>(.*?)</Message>", re.DOTALL)
_LONG_WORD = re.compile(r"[A-Za-z0-9+/=_%-]{20,}")
_REGION_WANTED = re.compile(r"expecting '([a-z0-9-]+)'|<Region>([a-z0-9-]+)</Region>")

_BUCKET_CODES = {"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted", "BucketNotFound"}
_CREDENTIAL_CODES = {
    "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "TokenExpired",
    "TokenRefreshRequired", "AuthenticationFailed", "InvalidAuthenticationInfo", "AuthFailure",
    "NoAuthenticationInformation", "InvalidSecurity", "AccountProblem", "MissingSecurityHeader",
    "XAdminInvalidAccessKey", "InvalidClientTokenId", "UnrecognizedClientException",
}  # fmt: skip
_REGION_CODES = {
    "PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException", "InvalidRegion",
}  # fmt: skip
_BUSY_CODES = {"SlowDown", "ServerBusy", "TooManyRequests", "RequestLimitExceeded", "Throttling"}
_ENDPOINT_WORDS = (
    "error trying to connect", "tcp connect error", "connection refused", "dns error",
    "failed to lookup", "name or service not known", "network is unreachable", "no route to host",
    "kind: connect,",
)  # fmt: skip
_INSTANCE_WORDS = ("169.254.169.254", "latest/api/token", "metadata.google", "identity/oauth2")
_LATE_WORDS = ("kind: timeout", "timed out", "timedout", "deadline has elapsed")
_BROKEN_WORDS = (
    "error sending request", "incompletemessage", "kind: interrupted", "connection reset",
    "broken pipe", "connection closed", "error decoding response body",
)  # fmt: skip
_CAUSE = re.compile(r"(?:message|error): \"([^\"]{3,200})\"")
"""The innermost cause, as the client shows its errors."""


@dataclass(frozen=True)
class RefusedRequest:
    """Why a request failed."""

    kind: str
    sentence: str
    passing: bool
    """Whether the same request may succeed in a moment."""
    certain: bool
    """Whether the server has certainly not carried the request out."""


def refusal_of(error: BaseException, url: StoreUrl) -> RefusedRequest:
    """What an error of the client means."""
    text = str(error)
    low = text.lower()
    status_found = _STATUS.search(text)
    status = int(status_found[1]) if status_found else 0
    code_found = _CODE.search(text)
    code = (code_found[1] or code_found[2]) if code_found else ""
    if "RequestTimeTooSkewed" in text or "request date header too old" in low:
        return _final(
            CLOCK, "the clock of this machine differs from the server's: set it, for example by NTP"
        )
    if code in _BUCKET_CODES or "bucket does not exist" in low or "container does not exist" in low:
        return no_bucket(url)
    if code in _REGION_CODES or "incorrectly configured region" in low:
        return _final(REGION, _other_region(text, url))
    if any(word in low for word in _INSTANCE_WORDS):
        return _final(CREDENTIALS, f"no credentials were found: {_belong(url)}")
    if code in _CREDENTIAL_CODES or status == 401:
        shown = f" ({code})" if code else ""
        return _final(
            CREDENTIALS, f"the server does not accept the credentials{shown}: {_belong(url)}"
        )
    if status == 403 or code == "AccessDenied":
        shown = f" ({code})" if code else ""
        return _final(
            PERMISSION,
            f"permission denied{shown}: the credentials lack a permission for {url.where()}, or "
            "are those of somebody else; the guides of stores list the permissions",
        )
    if any(word in low for word in ("certificate", "tls handshake", "invalidcertificate")):
        return _final(
            TLS,
            "the server's TLS certificate is not trusted: name the authority's file with the "
            "option ca_file=/path/to/ca.pem",
        )
    if any(word in low for word in _ENDPOINT_WORDS):
        return RefusedRequest(
            ENDPOINT, f"{_server(url)} cannot be reached: {_short(text)}", True, certain=True
        )
    if status == 429 or status == 503 or code in _BUSY_CODES:
        return RefusedRequest(BUSY, f"the server is busy ({code or status})", True, certain=False)
    if not status and any(word in low for word in _LATE_WORDS):
        return RefusedRequest(
            TIME_OUT,
            f"{_server(url)} did not answer in {url.option('timeout')}",
            True,
            certain=False,
        )
    if not status and any(word in low for word in _BROKEN_WORDS):
        said = f"the connection to {_server(url)} was broken"
        return RefusedRequest(OTHER, said, True, certain=False)
    shown = " ".join(filter(None, (str(status or ""), code))) or "no usable answer"
    passing = not 400 <= status < 500 or status in (408, 409, 412)
    return RefusedRequest(OTHER, f"{shown}: {_short(text)}", passing, certain=not passing)


def no_bucket(url: StoreUrl) -> RefusedRequest:
    """The refusal for a bucket that does not exist."""
    kind = "container" if url.scheme == "az" else "bucket"
    return _final(BUCKET, f"there is no {kind} {url.place!r}: create it, or correct the URL")


def cleaned(text: str) -> str:
    """A text without anything that could be a key, a token or a signature."""
    text = re.sub(r"\?[^\s)>\"']+", "", html.unescape(text))
    return _LONG_WORD.sub("…", re.sub(r"\s+", " ", text)).strip()


def _final(kind: str, sentence: str) -> RefusedRequest:
    return RefusedRequest(kind, sentence, False, certain=True)


def _short(text: str) -> str:
    """The message of an answer, or the innermost cause that a client names."""
    found = _MESSAGE.search(text)
    if found:
        return cleaned(found[1])[:200]
    text, _, details = text.partition("Debug source")
    if causes := _CAUSE.findall(details):
        return cleaned(causes[-1])[:200]
    if "<" in text:  # the rest of an answer in XML or HTML
        text = text.partition("<")[0]
    return cleaned(text.rpartition(" - ")[2] or text)[:200]


def _belong(url: StoreUrl) -> str:
    return f"they are taken from {CREDENTIALS_BELONG[url.scheme]}"


def _server(url: StoreUrl) -> str:
    endpoint = url.option("endpoint") if "endpoint" in OPTIONS[url.scheme] else ""
    return endpoint or f"the server of {url.scheme}://{url.place}"


def _other_region(text: str, url: StoreUrl) -> str:
    found = _REGION_WANTED.search(text)
    wanted = (found[1] or found[2]) if found else "NAME"
    own = (url.option("region") if url.scheme == "s3" else "") or "us-east-1"
    return f"the bucket {url.place!r} is not in region {own}: add the option region={wanted}"
