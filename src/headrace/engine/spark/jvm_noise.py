"""Hides the messages of a starting JVM from users who did not ask for them.

Commands send Spark's own log to a file. Of the lines that the JVM itself writes to standard error
while it starts, known noise is dropped. Everything else is shown, and so is everything later
(including the prints of user code in Python workers).
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_NOISE = re.compile(
    rb"WARNING: (Using incubator modules|.*sun\.misc\.Unsafe|.*java\.lang\.System::load"
    rb"|Please consider reporting|Use --enable-native-access|Restricted methods"
    rb"|A (restricted|terminally deprecated) method|package .* not in java\.base)"
    rb"|Using Spark's default log4j profile|Setting default log level|To adjust logging level"
    rb"|WARN NativeCodeLoader|WARN SparkConf: Note that spark.local.dir"
    rb"|Picked up (_JAVA_OPTIONS|JAVA_TOOL_OPTIONS|JDK_JAVA_OPTIONS)"
)

_LOST = "Exception while sending command."
"""What py4j logs, with a page of frames, when its JVM has ended."""

LOG_NAME = "spark.log"
FAREWELL_S = 2.0

_LOG4J = """\
status = off
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = SizeBasedTriggeringPolicy
appender.file.policies.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
"""


def write_log_settings(directory: Path) -> Path:
    """Writes settings that send Spark's log to the file `LOG_NAME` beside them."""
    settings = directory / "log4j2.properties"
    log = (directory / LOG_NAME).as_posix()
    settings.write_text(_LOG4J.format(log=log), encoding="utf-8")
    return settings


class NoFarewell:
    """While active, the Python side of Spark prints no long traces when its JVM dies.

    The caller that uses Spark then gets an error, which reports it.
    """

    def __init__(self, context: Any) -> None:
        self._server = getattr(context, "_accumulatorServer", None)
        self._process = getattr(getattr(context, "_gateway", None), "proc", None)
        logging.getLogger().addFilter(self._passes)
        if self._server is not None:
            self._server.handle_error = self._handle_error

    def _passes(self, record: logging.LogRecord) -> bool:
        return record.msg != _LOST

    def _handle_error(self, request: Any, address: Any) -> None:
        # A JVM that is killed may break its connection, instead of ending it.
        expected = isinstance(sys.exception(), (EOFError, ConnectionError))
        if self._server is not None and not expected:
            type(self._server).handle_error(self._server, request, address)

    def end(self) -> None:
        """Ends the suppression; where the JVM is dead, its last connection may end yet."""
        logging.getLogger().removeFilter(self._passes)
        is_dead = self._process is not None and self._process.poll() is not None
        if self._server is not None and not is_dead:
            vars(self._server).pop("handle_error", None)


class StartUp:
    """What processes started under `filtered_stderr` have written so far, without the noise."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.over = threading.Event()


@contextmanager
def filtered_stderr() -> Iterator[StartUp]:
    """Processes started inside write their standard error through a filter for their whole life.

    Their output is kept during the block, and shown when the block ends well. If the block fails,
    the caller may find the reason in it.
    """
    start_up = StartUp()
    try:
        visible = os.dup(2)
    except OSError:  # There is no standard error to filter.
        yield start_up
        return
    reading, writing = os.pipe()
    sys.stderr.flush()
    os.dup2(writing, 2)
    os.close(writing)
    forwarder = threading.Thread(
        target=_forward, args=(reading, visible, start_up), name="jvm-stderr", daemon=True
    )
    forwarder.start()
    try:
        yield start_up
    except BaseException:
        os.dup2(visible, 2)
        forwarder.join(timeout=FAREWELL_S)  # A process that failed to start has ended its output.
        raise
    else:
        sys.stderr.flush()
        os.dup2(visible, 2)
        start_up.over.set()
        for line in start_up.lines:
            print(line, file=sys.stderr)


def _forward(reading: int, visible: int, start_up: StartUp) -> None:
    """Forwards lines until the last process that writes them has ended."""
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if start_up.over.is_set():
                try:
                    os.write(visible, line)
                except OSError:  # Standard error is closed; the writer must not block anyway.
                    pass
            elif not _NOISE.search(line):
                start_up.lines.append(line.decode(errors="replace").rstrip())


def status_of(process: subprocess.Popen[bytes] | None) -> int | None:
    """The exit status of a JVM, if it was started from here."""
    try:
        return None if process is None else process.wait(FAREWELL_S)
    except subprocess.TimeoutExpired:
        return None
