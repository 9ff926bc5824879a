"""Guards a client whose threads do not survive a fork.

obstore runs its requests on threads of its own. A child of a process that has used it inherits the
locks but not the threads, so every request in the child, of a new store object too, would wait for
ever. The guard turns that into an error. Spark's workers are safe: the daemon that forks them
never uses a store.
"""

from __future__ import annotations

import os

from headrace.errors import HeadraceError

_used = False
_inherited = False


def before_use(scheme: str) -> None:
    """Raises if the parent process of this one had used the client; otherwise notes its use."""
    global _used
    if _inherited:
        raise HeadraceError(
            f"this process was forked from one that had already used a store at {scheme}://, and "
            "its client would hang here: start processes with "
            "multiprocessing.get_context('spawn'), or fork before the first use of the store"
        )
    _used = True


def _in_child() -> None:
    global _inherited
    _inherited = _inherited or _used


os.register_at_fork(after_in_child=_in_child)
