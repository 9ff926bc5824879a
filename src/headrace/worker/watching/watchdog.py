"""The watchdog: stops hooks that run longer than their computation's `timeout=`.

Hooks are not timed one by one. While they run, a thread checks a few times per timeout which hook
is running. A hook that is still the same after the whole timeout is stopped. So there is no cost
per record, and a suspended process is not blamed, because its watchdog was suspended as well.

1. An exception is raised inside the hook: by a signal in the main thread, which also ends sleeps
   and waits; in other threads as soon as they run Python code again.
2. If the hook still runs (it catches the exception, or it is in C code) and this process is a
   Spark worker, the process writes the reason to a file and ends. Spark runs the task again.
3. C code that keeps the interpreter's lock blocks this thread too. Then the interpreter's own
   timer (`faulthandler`), which needs no lock, ends the process.

Here time decides what a task produces. This is as safe as any other failure: the dead letter of a
stopped hook is part of the task's digest, so two attempts that differ are detected, and the epoch
runs again (protocol B3). The dead letter does not say at which line the hook was stopped, because
that would differ between attempts.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TextIO

from headrace.pipeline.graph.graph import Node

LOOKS = 8
"""How many times a hook is checked within its timeout."""
GRACE_S = 3.0
"""How long a hook may still run after it was interrupted, before the process ends."""

_SIGNAL = getattr(signal, "SIGRTMIN", signal.SIGUSR2) + (7 if hasattr(signal, "SIGRTMIN") else 0)


class Interrupt(BaseException):
    """Raised inside a hook that runs too long. Not an Exception, as hooks often catch those."""


class HookTimeout(TimeoutError):
    """A hook ran longer than its computation's timeout."""


class HookWatch:
    """The hooks of one computation in one thread."""

    def __init__(self, node: Node, hook: str = "") -> None:
        self.name = node.name
        self.timeout_s = (node.timeout_us or 0) / 1e6
        self.turn: int | None = None
        """The number of the current turn of hooks; None while no hook runs."""
        self.thread = threading.get_ident()
        self.told_to_stop = False
        self._turns = 0
        self._context: Any = None
        self._hook = hook
        self._seen: object = None
        self._waited_s = 0.0
        self._interrupts = 0

    def over(self, context: Any) -> HookWatch:
        """Sets the context of the watched hooks; returns this watch."""
        self._context = context
        return self

    def begin(self) -> None:
        """Starts a turn: hooks run from now on, until `turn` is None."""
        self._turns += 1
        self.turn = self._turns

    def running(self) -> tuple[int, int] | None:
        """Identifies the running hook; None if no hook runs."""
        turn = self.turn
        return None if turn is None else (turn, getattr(self._context, "hook", 0))

    def looked(self, passed_s: float) -> bool:
        """One check, `passed_s` after the previous one: whether the hook has run too long."""
        running = self.running()
        if running is None or running != self._seen:
            self._seen, self._waited_s, self._interrupts = running, 0.0, 0
            return False
        self._waited_s += passed_s
        return self._waited_s >= self.timeout_s * (1 + self._interrupts)

    def overdue(self) -> bool:
        """Whether the grace period of an interrupted hook has ended."""
        return self._interrupts > 0 and self._waited_s >= self.timeout_s + GRACE_S

    def is_still_there(self) -> bool:
        """Whether the hook of the last check still runs."""
        return self._seen is not None and self.running() == self._seen

    def interrupt(self) -> None:
        """Interrupts the hook."""
        self._interrupts += 1
        self.told_to_stop = True
        if self.thread == threading.main_thread().ident:
            _suspects.add(self)
            signal.pthread_kill(self.thread, _SIGNAL)
        else:
            _raise_in(self.thread, Interrupt)

    def error(self) -> HookTimeout:
        """The error of a stopped hook. It is the same wherever the hook was stopped."""
        return HookTimeout(f"{self._hook or 'the hook'} ran longer than timeout={self._shown()}")

    def describe(self) -> str:
        """The computation and key, as text."""
        key = getattr(self._context, "key", None)
        where = "" if key is None else f", key {key!r:.100}"
        return f"computation {self.name!r}{where}: a hook ran longer than timeout={self._shown()}"

    def _shown(self) -> str:
        return f"{self.timeout_s:g}s"


def error_of(error: BaseException, watch: HookWatch) -> Exception:
    """The error of a hook that failed or that may have been stopped."""
    if isinstance(error, Interrupt):
        return watch.error().with_traceback(error.__traceback__)
    if isinstance(error, Exception):
        return error
    raise error


@contextmanager
def watching(watch: HookWatch) -> Iterator[HookWatch]:
    """Inside this context, the watchdog watches the hooks of a computation with a timeout.

    If the interrupt arrives just after the hook has returned, the task fails.
    """
    if not watch.timeout_s:
        yield watch
        return
    _dog.add(watch)
    try:
        yield watch
    except Interrupt as interrupt:
        raise watch.error().with_traceback(interrupt.__traceback__) from None
    finally:
        watch.turn = None
        _dog.remove(watch)


# The thread ------------------------------------------------------------------


class _Dog:
    """Checks all watches of this process, in a thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: list[HookWatch] = []
        self._news = threading.Event()
        self._thread: threading.Thread | None = None
        self._word: TextIO | None = None

    def add(self, watch: HookWatch) -> None:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(_SIGNAL) is not _on_signal:
            signal.signal(_SIGNAL, _on_signal)
        with self._lock:
            self._watches.append(watch)
            self._arm(again=True)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="headrace-watchdog", daemon=True
                )
                self._thread.start()
        self._news.set()

    def remove(self, watch: HookWatch) -> None:
        with self._lock:
            self._watches.remove(watch)
            _suspects.discard(watch)
            if watch.told_to_stop and watch.thread != threading.main_thread().ident:
                _raise_in(watch.thread, None)  # Cancels an interrupt that has not arrived yet.
            if not self._watches:
                self._disarm()

    def _run(self) -> None:
        while True:
            with self._lock:
                shortest = min((w.timeout_s for w in self._watches), default=None)
                if shortest is None:
                    self._news.clear()
            if shortest is None:
                self._news.wait()
                continue
            pause = max(0.005, shortest / LOOKS)
            threading.Event().wait(pause)
            with self._lock:
                for watch in self._watches:
                    if watch.looked(pause):
                        if watch.overdue() and is_worker():
                            self._end(watch)
                        watch.interrupt()
                self._arm(again=False)

    # The last resort, in workers only ------------------------------------

    def _arm(self, *, again: bool) -> None:
        """Sets the timer that needs no lock, and writes down which hook would be to blame."""
        if not is_worker() or not self._watches:
            return
        if again:
            self._disarm()
            path = _word_path()
            self._word = open(path, "a", encoding="utf-8") if path else None  # noqa: SIM115
            names = ", ".join(sorted({repr(w.name) for w in self._watches}))
            _leave_word(self._word, f"{RUNNING} computation {names}")
        limit = 2 * max(w.timeout_s for w in self._watches) + GRACE_S
        faulthandler.dump_traceback_later(limit, exit=True, file=self._word or sys.stderr)

    def _disarm(self) -> None:
        if not is_worker():
            return
        faulthandler.cancel_dump_traceback_later()
        if self._word is not None:
            self._word.close()
            self._word = None

    def _end(self, watch: HookWatch) -> None:
        text = f"{STUCK} {watch.describe()}, and could not be stopped"
        _leave_word(self._word, text)
        _leave_word(sys.stderr, text)
        os._exit(1)


_dog = _Dog()
_suspects: set[HookWatch] = set()


def _anew() -> None:
    global _dog
    _dog = _Dog()
    _suspects.clear()


os.register_at_fork(after_in_child=_anew)


def _on_signal(number: int, frame: FrameType | None) -> None:
    """Runs in the main thread. The hook may have ended since the check."""
    for watch in list(_suspects):
        _suspects.discard(watch)
        if watch.is_still_there():
            raise Interrupt


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    target = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), target)


# Message to the driver -------------------------------------------------------

RUNNING = "headrace-running:"
STUCK = "headrace-stuck:"


def is_worker() -> bool:
    """Whether this process is a Python worker of Spark, which may end at any time."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name in ("pyspark.daemon", "pyspark.worker")


def _word_path() -> str | None:
    """The file that Spark reads when a Python worker has ended unexpectedly."""
    directory = os.environ.get("PYTHON_FAULTHANDLER_DIR")
    return os.path.join(directory, str(os.getpid())) if directory else None


def _leave_word(file: TextIO | None, text: str) -> None:
    if file is not None:
        file.write(f"{text}\n")
        file.flush()


def blamed(text: str) -> str | None:
    """The hook that made a worker end, from Spark's error text; None if no hook is named there."""
    if found := re.search(f"{STUCK} (.*)", text):
        return found[1]
    found = re.search(f"{RUNNING} (.*)", text)
    if found and "Timeout (" in text:
        return f"{found[1]}: a hook ran longer than its timeout in code that cannot be stopped"
    return None
