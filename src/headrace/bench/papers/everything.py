"""Runs all rows, each in a process of its own, and writes the page.

A row that fails, or takes too long, is said to have failed; the others go on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.bench.frame.result import write_document
from headrace.bench.frame.rounds import Say
from headrace.bench.papers.catalog import ROWS
from headrace.bench.papers.page import read_rows, render_page
from headrace.bench.papers.row import document

ROW_TIMEOUT_S = 900.0

Launch = Callable[[str, Path], str | None]
"""Runs a row and writes its JSON file; why it failed, or None."""


def run_all(
    names: Sequence[str],
    directory: Path,
    page: Path | None,
    *,
    launch: Launch | None = None,
    say: Say = lambda line: None,
) -> list[str]:
    """Runs rows one after the other; returns those that failed."""
    directory.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in names:
        say(f"{name} ...")
        why = None
        if not _judged_again(name, names[: names.index(name)], directory):
            why = (launch or in_process)(name, directory / f"{name}.json")
        if why is None:
            document = read_rows(directory).get(name, {})
            same = "same shape" if document.get("same_shape") else "NOT the same shape"
            say(f"{name}: {same}: {document.get('why', '')}")
        else:
            failed.append(name)
            say(f"{name}: failed: {why}")
        if page is not None:  # after each row: a run that is stopped leaves what it has
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(render_page(read_rows(directory)), encoding="utf-8")
    return failed


def _judged_again(name: str, before: Sequence[str], directory: Path) -> bool:
    """Two figures may come from one experiment: then the second is judged on the same numbers."""
    row, known = ROWS[name], read_rows(directory)
    for other in before:
        if other in known and ROWS[other].measure is row.measure:
            found = known[other]
            write_document(
                found | document(row, found["ours"], found.get("machine")),
                directory / f"{name}.json",
            )
            return True
    return False


def in_process(name: str, path: Path) -> str | None:
    """Runs a row in a process of its own, which is killed with its children when time is up."""
    command = [sys.executable, "-m", "headrace.cli.main", "bench", "paper", name]
    process = subprocess.Popen(
        [*command, "--json", str(path)], start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=ROW_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return f"it took longer than {ROW_TIMEOUT_S:g} s"
    if process.returncode:
        lines = said.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it ended with {process.returncode}"
    return None
