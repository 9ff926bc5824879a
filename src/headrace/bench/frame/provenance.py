"""Where the numbers of several documents come from: machines, versions, loads, commits."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_VERSIONS = ("python", "java", "pyspark", "pyarrow", "numpy", "headrace")


def machine_lines(documents: Iterable[Mapping[str, Any]]) -> list[str]:
    """A list, as Markdown, of where these documents were measured. Each line names all values."""
    documents = list(documents)
    machines = [d["machine"] for d in documents if "machine" in d]
    versions = [d["versions"] for d in documents if "versions" in d]
    if not machines:
        return ["- Machine: not known; nothing was run."]
    shapes = _distinct(
        f"{m.get('cores')} cores, {m.get('memory_gb')} GB, {m.get('processor')}, {m.get('system')}"
        for m in machines
    )
    loads = [float(m["load_average_before"][0]) for m in machines if m.get("load_average_before")]
    lines = [f"- Machine: {'; '.join(shapes)}."]
    if loads:
        cores = machines[0].get("cores")
        lines.append(
            f"- Load of the machine before a run, as a number of processes that want one of "
            f"{cores} cores: {min(loads):g} to {max(loads):g}."
        )
    used = {
        name: _distinct(str(each.get(name)) for each in versions if each.get(name))
        for name in _VERSIONS
    }
    lines.append("- Versions: " + ", ".join(f"{n} {' and '.join(v)}" for n, v in used.items() if v))
    commit = commit_of()
    if commit:
        lines.append(f"- Written at commit {commit}.")
    return lines


def commit_of(directory: Path | None = None) -> str:
    """The commit of the source, with a plus sign if files differ from it; empty if unknown."""
    where = Path(__file__).parent if directory is None else directory
    try:
        found = _git(where, "rev-parse", "--short=12", "HEAD")
        changed = _git(where, "status", "--porcelain", "--untracked-files=no", "--", "src")
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{found} with changes" if changed else found


def _git(where: Path, *words: str) -> str:
    top = ["git", "-C", str(where)]
    if words[0] == "status":
        root = subprocess.run(
            [*top, "rev-parse", "--show-toplevel"],
            capture_output=True, text=True, timeout=10, check=True,
        ).stdout.strip()  # fmt: skip
        top = ["git", "-C", root]
    done = subprocess.run([*top, *words], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
