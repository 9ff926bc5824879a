"""Which errors are transient, and how long to wait before the next retry. Pure.

An outage is a failure of something outside (the checkpoint's filesystem, a sink's system) that may
end by itself: the pipeline is correct, and the same act may succeed later. All other errors need a
person: damage, state of another pipeline, a newer driver, user code.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

import msgspec

from headrace.errors import (
    HeadraceError,
    SinkError,
    SinkUnavailable,
    SourceUnavailable,
    StoreError,
    by_name,
)
from headrace.limits import LIMITS, Limits

QUICK_TRIES = 5
"""Quick retries before an outage is announced: a short failure is not worth a notice."""
HICCUP_S = 5.0
"""An outage longer than this is announced even after few retries, because one try can block."""
_JITTER = 0.25

_TRANSIENT = frozenset(
    getattr(errno, name)
    for name in (
        "ENOSPC", "EDQUOT", "EIO", "ESTALE", "ETIMEDOUT", "EACCES", "EPERM", "EROFS", "EAGAIN",
        "EBUSY", "EINTR", "EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "ENODEV", "ENXIO", "ENOTCONN",
        "ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "EPIPE", "ENETDOWN", "ENETUNREACH",
        "EHOSTDOWN", "EHOSTUNREACH", "ESHUTDOWN", "EREMOTEIO", "ENOLCK",
    )
    if hasattr(errno, name)
)  # fmt: skip

_DATABASE_TROUBLE = {"OperationalError", "InterfaceError"}
"""The names that PEP 249 gives to database errors that are not the caller's fault."""


class Outage(msgspec.Struct, frozen=True):
    """Which part is unavailable, since when, and its last error."""

    part: str
    """"checkpoint", "sink" or "source"."""
    since: float
    """Seconds since 1970."""
    error: str
    tries: int


def is_outage(error: BaseException) -> bool:
    """Whether the same act may succeed later without a change of the pipeline.

    Our own errors are judged by their kind, or by their cause.
    """
    for each in _with_causes(error):
        if isinstance(each, StoreError):
            return True
        if isinstance(each, HeadraceError) and not isinstance(each, SinkError):
            return False
        if isinstance(each, OSError):
            # Libraries derive from OSError without a number (requests), or from its subclasses.
            lost = isinstance(each, ConnectionError | TimeoutError)
            return lost or each.errno is None or each.errno in _TRANSIENT
        if any(kind.__name__ in _DATABASE_TROUBLE for kind in type(each).__mro__):
            return True
    return False


def refused_in(text: str) -> StoreError | None:
    """The StoreError in an error text of Spark, for a task that failed before it could report."""
    kinds = "StoreError|SinkUnavailable|SourceUnavailable"
    found = re.search(rf"headrace\.errors\.({kinds}): (.*)", text)
    if found is None:
        return None
    kind = by_name(found[1])
    return kind(found[2]) if issubclass(kind, StoreError) else None


def part_of(error: BaseException) -> str:
    """Which part of the pipeline is unavailable."""
    if isinstance(error, SinkError | SinkUnavailable):
        return "sink"
    if isinstance(error, SourceUnavailable):
        return "source"
    return "checkpoint" if isinstance(error, StoreError) else "source"


def delay_s(tries: int, chance: float, limits: Limits = LIMITS) -> float:
    """How long to wait after `tries` failures; `chance` in [0, 1) is the jitter."""
    if tries <= QUICK_TRIES:
        plain = limits.retry_quick_s * 2 ** (tries - 1)
    else:
        plain = limits.retry_slow_s * 2 ** min(tries - QUICK_TRIES - 1, 10)
        plain = min(limits.retry_slowest_s, plain)
    return plain * (1 - _JITTER + 2 * _JITTER * chance)


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
