"""The processes of this machine: a mark in a command line, and descendants of what has it.

A number of a process is used again after its end, so a process is its number and when it began.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")


class ProcessSeen(NamedTuple):
    """A process, as it was when somebody looked."""

    pid: int
    parent: int
    began: str
    command: str

    @property
    def identity(self) -> tuple[int, str]:
        """What stays when its parent ends, or when it runs another program."""
        return self.pid, self.began


def family(mark: str, seen: Iterable[ProcessSeen]) -> list[ProcessSeen]:
    """The processes with the mark in their command, and all their descendants. Pure."""
    found = {each.pid: each for each in seen if mark in each.command}
    children: dict[int, list[ProcessSeen]] = {}
    for each in seen:
        children.setdefault(each.parent, []).append(each)
    todo = list(found)
    while todo:
        for child in children.get(todo.pop(), ()):
            if child.pid not in found:
                found[child.pid] = child
                todo.append(child.pid)
    return sorted(found.values())


def processes() -> list[ProcessSeen]:
    """All processes that run, without those that have ended and that nobody has waited for."""
    if (_PROC / "self" / "stat").exists():
        numbers = [int(name) for name in os.listdir(_PROC) if name.isdigit()]
        return [each for pid in numbers if (each := _in_proc(pid)) is not None]
    answer = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,stat=,lstart=,command="],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return from_ps(answer.stdout)


def from_ps(answer: str) -> list[ProcessSeen]:
    """The processes in the answer of `ps`. Pure."""
    found = []
    for line in answer.splitlines():
        words = line.split(None, 8)  # when it began is five words
        if len(words) == 9 and not words[2].startswith("Z"):
            found.append(ProcessSeen(int(words[0]), int(words[1]), " ".join(words[3:8]), words[8]))
    return found


def _in_proc(pid: int) -> ProcessSeen | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
        command = (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:  # it has ended meanwhile
        return None
    fields = stat.rpartition(") ")[2].split()  # its name, before, may hold anything
    if fields[0] in ("Z", "X"):
        return None
    return ProcessSeen(
        pid, int(fields[1]), fields[19], command.replace(b"\0", b" ").decode("utf-8", "replace")
    )
