"""The virtual environments of foreign peers: made on first use, from pinned requirements.

A peer that this machine cannot have is named with the reason; it is never left out in silence.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path

from headrace.bench.servers.processes import CannotHave, installed, run

HERE = Path(__file__).parent
PYTHONS = {"bytewax": ("3.11", "3.12", "3.10"), "pyflink": ("3.11", "3.10", "3.12")}
"""Peer -> the versions of Python that it has wheels for, best first."""
PACKAGES = {"bytewax": "bytewax", "pyflink": "apache-flink"}


def requirements_of(peer: str) -> Path:
    """The file with a peer's pinned packages."""
    return HERE / f"{peer}-requirements.txt"


def version_of(peer: str) -> str:
    """The version of a peer that its requirements pin."""
    for line in requirements_of(peer).read_text(encoding="utf-8").splitlines():
        package, _, version = line.partition("==")
        if package == PACKAGES[peer]:
            return version
    raise ValueError(f"{requirements_of(peer)} does not pin {PACKAGES[peer]}")


def python_of(peer: str) -> Path:
    """The interpreter of a peer's environment; raises CannotHave with the reason."""
    requirements = requirements_of(peer)
    python = _find_python(peer)

    def make(home: Path) -> None:
        run(python, "-m", "venv", home)
        run(
            home / "bin/pip", "install", "--quiet", "--disable-pip-version-check",
            "--requirement", requirements,
            # Packages without wheels are built with pinned tools, too.
            PIP_CONSTRAINT=str(requirements),
        )  # fmt: skip

    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:8]
    home = installed(f"{peer}-{version_of(peer)}-{digest}", make)
    return home / "bin/python"


def missing(peers: list[str]) -> dict[str, str]:
    """Makes the environments of these peers; peer -> why this machine cannot have it."""
    reasons = {}
    for peer in peers:
        try:
            python_of(peer)
        except CannotHave as reason:
            reasons[peer] = str(reason)
    return reasons


def _find_python(peer: str) -> str:
    """An interpreter that the peer has wheels for: this one, or one on the PATH."""
    wanted = PYTHONS[peer]
    if f"{sys.version_info.major}.{sys.version_info.minor}" in wanted:
        return sys.executable
    for version in wanted:
        found = shutil.which(f"python{version}")
        if found is not None:
            return found
    raise CannotHave(f"{peer} needs Python {' or '.join(wanted)}, and none is on the PATH")
