"""Which errors are outages, and how long to wait before the next try. Pure.

An outage is a refusal of something outside (the checkpoint's filesystem, a sink's system) that may
end by itself: nothing about the pipeline is wrong, and the same act may succeed later. Everything
else needs a person: damage, another pipeline's state, a newer driver, user code.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

import msgspec

from headrace.errors import HeadraceError, SinkError, StoreError
from headrace.limits import LIMITS, Limits

QUICK_TRIES = 5
"""Tries in quick succession before an outage is announced: a hiccup is no news."""
HICCUP_S = 5.0
"""An outage longer than this is announced even after few tries, because one try can block."""
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
"""What PEP 249 has every database driver call the failures that are not the caller's."""


class Outage(msgspec.Struct, frozen=True):
    """What is away, since when, and what it last said."""

    part: str
    """"checkpoint", "sink" or "source"."""
    since: float
    """Seconds since 1970."""
    error: str
    tries: int


def is_outage(error: BaseException) -> bool:
    """Whether the same act may succeed later, with nobody changing the pipeline.

    Our own errors are judged by their kind, or by what caused them.
    """
    for each in _with_causes(error):
        if isinstance(each, StoreError):
            return True
        if isinstance(each, HeadraceError) and not isinstance(each, SinkError):
            return False
        if isinstance(each, OSError):
            # Libraries derive from OSError without a number (requests), or from its kinds.
            lost = isinstance(each, ConnectionError | TimeoutError)
            return lost or each.errno is None or each.errno in _TRANSIENT
        if any(kind.__name__ in _DATABASE_TROUBLE for kind in type(each).__mro__):
            return True
    return False


def refused_in(text: str) -> StoreError | None:
    """The store's refusal that Spark tells of, where a task met it before it could report."""
    found = re.search(r"headrace\.errors\.StoreError: (.*)", text)
    return StoreError(found[1]) if found else None


def part_of(error: BaseException) -> str:
    """Which part of the pipeline is away."""
    if isinstance(error, SinkError):
        return "sink"
    return "checkpoint" if isinstance(error, StoreError) else "source"


def delay_s(tries: int, chance: float, limits: Limits = LIMITS) -> float:
    """How long to wait after so many failed tries; `chance` in [0, 1) spreads those who wait."""
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
