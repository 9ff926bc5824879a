"""Memory that allocators hold back: what a process has freed, and the system does not have yet.

Two allocators keep pages for later: Arrow's pool, and that of the C library, under Python and
numpy. A worker whose state does not fit into its memory frees and allocates blocks of all sizes all
the time, in several threads. Without a word to them, about a third of its memory is such pages.
"""

from __future__ import annotations

import ctypes
import os
import time

import pyarrow as pa

_M_ARENA_MAX = -8
_ARENAS = 2
_REST_S = 1.0

_library = ctypes.CDLL(None)
_trim = getattr(_library, "malloc_trim", None)  # of glibc only
_trimmed_s = 0.0


def share_arenas() -> None:
    """Lets all threads of this process allocate from two arenas, not from eight per core.

    What one thread frees, another can use. The environment's own choice counts more.
    """
    chosen = "MALLOC_ARENA_MAX" in os.environ or "arena_max" in os.environ.get("GLIBC_TUNABLES", "")
    if _trim is not None and not chosen:
        _library.mallopt(_M_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Gives free pages back to the system, at most once a second."""
    global _trimmed_s
    now_s = time.monotonic()
    if now_s - _trimmed_s < _REST_S:
        return
    _trimmed_s = now_s
    pa.default_memory_pool().release_unused()
    if _trim is not None:
        _trim(0)
