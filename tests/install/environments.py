"""Wheels and virtual environments for tests: built once, from a copy of the source."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pyspark
from tests.spark.support import ROOT, SHORT_LIVED_JVM

from headrace.bench.servers.processes import installed

QUIET = ("--quiet", "--disable-pip-version-check")


def built_wheel(directory: Path) -> Path:
    """The wheel of this source. The build runs on a copy: it leaves files behind."""
    copy = directory / "source"
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        copy.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    build = ("wheel", *QUIET, "--no-deps", "--no-build-isolation")
    call(sys.executable, "-m", "pip", *build, "--wheel-dir", directory, copy)
    [wheel] = directory.glob("headrace-*.whl")
    return wheel


def empty_environment(directory: Path) -> Path:
    """A virtual environment with nothing but pip in it; returns its directory."""
    call(sys.executable, "-m", "venv", directory)
    return directory


def with_packages_of_this_one(environment: Path) -> None:
    """Lets an environment import what is installed here; not what is installed to be edited.

    Its own packages come first. `.pth` files of this environment, one of which leads to the source
    of Headrace, are not read from there.
    """
    [site] = environment.glob("lib/python*/site-packages")
    (site / "beside.pth").write_text(f"{sysconfig.get_path('purelib')}\n")


def environment_with_spark(version: str) -> Path:
    """The Python of an environment with that PySpark and what Headrace needs; made once."""
    if version == pyspark.__version__:
        return Path(sys.executable)
    text = (ROOT / "constraints.txt").read_text()
    free = "\n".join(line for line in text.splitlines() if not re.match("(pyspark|py4j)==", line))

    def make(home: Path) -> None:
        (home / "constraints.txt").write_text(free)
        bound = (*QUIET, "--constraint", home / "constraints.txt")
        pip = empty_environment(home / "venv") / "bin" / "pip"
        call(pip, "install", *bound, "setuptools")
        needs = [need for need in plain_needs() if not need.startswith("pyspark")]
        call(pip, "install", *bound, "--no-build-isolation", f"pyspark=={version}", *needs)

    return installed(f"pyspark-{version}", make) / "venv" / "bin" / "python"


def plain_needs() -> list[str]:
    """What a plain `pip install headrace` installs besides, as pyproject.toml says."""
    return project()["dependencies"]


def project() -> dict[str, Any]:
    import tomllib

    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def call(*command: object, cwd: Path | None = None, **more: str) -> str:
    """Runs a command outside of this source; returns what it said, and raises with it."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={"JAVA_TOOL_OPTIONS": SHORT_LIVED_JVM, **clean, **more},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout
