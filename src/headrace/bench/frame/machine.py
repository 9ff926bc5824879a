"""Describes the machine on which a benchmark ran: numbers mean little without it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

PACKAGES = ("headrace", "pyspark", "pyarrow", "numpy", "pandas", "msgspec", "protobuf")


def describe_machine() -> dict[str, object]:
    """Cores, memory, processor and how busy the machine already is."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "memory_gb": round(memory / 2**30, 1),
        "processor": _processor(),
        "system": platform.platform(),
        "load_average_before": [round(load, 2) for load in os.getloadavg()],
    }


def describe_versions() -> dict[str, str]:
    """Python, Java and the packages that shape the numbers."""
    versions = {"python": platform.python_version(), "java": _java_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def _processor() -> str:
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.exists():
        for line in cpu_info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _java_version() -> str:
    """The first line of `java -version`, from the Java that Spark would start."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    try:
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "not found"
    return (said.stderr or said.stdout).partition("\n")[0]
