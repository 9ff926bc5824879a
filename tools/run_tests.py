"""Runs every test, in parts that run side by side: `make test`.

    tools/run_tests.py [ARGUMENTS OF PYTEST...]

Some parts compute, others wait for most of their time: for JVMs to start, leases to lapse,
processes to die. So more parts run at a time than a small machine has cores. What a part says
is printed when it ends. With arguments: one plain pytest.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
AT_ONCE = 3

# The long ones first, so that none of them is left for the end. () are those that no part names.
TESTS: tuple[tuple[str, ...], ...] = (
    ("tests/simulation",),
    ("tests/spark/test_[a-k]*.py",),
    ("tests/unit/[a-o]*/",),
    ("tests/cluster",),
    ("tests/spark/test_[l-z]*.py",),
    ("tests/unit/[p-z]*/",),
    ("tests/property",),
    (),
    ("tests/contract",),
    ("tests/servers", "tests/browser"),
)


class Part:
    """A command that runs beside others."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._began = time.monotonic()
        # A group of its own, so that it can be ended with all that it has started.
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def ended(self, status: int, cpu_s: float) -> bool:
        """Prints what it has said; whether it went well."""
        self._process.returncode = os.waitstatus_to_exitcode(status)
        well = self._process.returncode == 0
        self._tell(f"{'passed' if well else 'FAILED'}, {cpu_s:,.0f} s of CPU")
        return well

    def end(self) -> None:
        """Ends it as Ctrl-C does, and then for good."""
        for sign, patience_s in ((signal.SIGINT, 20), (signal.SIGKILL, 5)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)
        self._tell("was ended")

    def _tell(self, how: str) -> None:
        self._said.seek(0)
        print(f"\n##### {self.name}", flush=True)
        sys.stdout.buffer.write(self._said.read())
        print(f"##### {self.name}: {how}, {time.monotonic() - self._began:,.0f} s", flush=True)
        self._said.close()


def parts() -> Iterator[tuple[str, list[str]]]:
    """The name and the command of each part."""
    python, pytest = sys.executable, [sys.executable, "-m", "pytest"]
    if not ARCHIVE.exists():
        yield "classes of Spark, for its JVMs", [python, "tools/share_classes.py", str(ARCHIVE)]
    named = {patterns: [n for p in patterns for n in files_of(p)] for patterns in TESTS if patterns}
    rest = [f"--ignore={name}" for names in named.values() for name in names]
    for patterns in TESTS:
        yield " ".join(patterns) or "all other tests", [*pytest, *named.get(patterns, rest)]
    yield "types", [python, "-m", "mypy"]


def files_of(pattern: str) -> list[str]:
    """The tests that a pattern names: at least one, or a part would not be what it says."""
    found = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob(pattern))
    if not found:
        raise SystemExit(f"tools/run_tests.py: there is nothing at {pattern}")
    return found


def run(waiting: Iterator[tuple[str, list[str]]]) -> bool:
    """Runs all parts; whether all went well."""
    running: dict[int, Part] = {}
    failed = []
    try:
        while True:
            while len(running) < AT_ONCE and (following := next(waiting, None)) is not None:
                part = Part(*following)
                running[part.pid] = part
            if not running:
                break
            pid, status, usage = os.wait4(-1, 0)
            if (part := running.pop(pid, None)) and not part.ended(
                status, usage.ru_utime + usage.ru_stime
            ):
                failed.append(part.name)
    finally:
        for part in running.values():
            part.end()
    for name in failed:
        print(f"FAILED: {name}")
    return not failed


def main(arguments: list[str]) -> None:
    """Runs what the arguments ask for; the status is 0 if all went well."""
    options = os.environ.get("SPARK_SUBMIT_OPTS", "")
    shared = f"-Xlog:disable -XX:SharedArchiveFile={ARCHIVE}"
    os.environ["SPARK_SUBMIT_OPTS"] = f"{options} {shared}".strip()
    if arguments:
        os.execv(sys.executable, [sys.executable, "-m", "pytest", *arguments])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(0 if run(parts()) else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
