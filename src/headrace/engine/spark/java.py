"""Looks for a Java that Spark can run on; if there is none, says in one sentence what to do."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess

from headrace.errors import HeadraceError

JAVA_VERSION_MIN = 17

# The first package manager that is found determines the command.
_INSTALLERS = {
    "brew": "brew install --cask temurin@17",
    "apt-get": "apt-get install openjdk-17-jre-headless",
    "dnf": "dnf install java-21-openjdk-headless",
    "apk": "apk add openjdk17-jre-headless",
    "pacman": "pacman -S jre17-openjdk-headless",
}


def check_java() -> None:
    """Raises HeadraceError if Spark would find no Java, or one that is too old."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    version = java_version(_version_output(java))
    if version is not None and version >= JAVA_VERSION_MIN:
        return
    if version is not None:
        found = f"{java} is Java {version}"
    else:
        found = f"JAVA_HOME ({home}) holds none" if home else "none is on the PATH"
    raise HeadraceError(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer, but {found}: "
        f"install it with `{install_command()}`."
    )


def java_version(output: str) -> int | None:
    """The major version that `java -version` names: 17.0.15 is 17, and 1.8.0_402 is 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(found[1]) if found else None


def install_command() -> str:
    """The command that installs Java on this machine."""
    for tool, command in _INSTALLERS.items():
        if tool == "brew" and platform.system() != "Darwin":
            continue
        if shutil.which(tool):
            if tool == "apt-get" and _is_recent_debian():
                command = command.replace("17", "21")
            as_root = tool == "brew" or (hasattr(os, "geteuid") and os.geteuid() == 0)
            return command if as_root else f"sudo {command}"
    return "sdk install java 17-tem"


def _is_recent_debian() -> bool:
    """Debian 13 and later no longer carry Java 17."""
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        return False
    number = system.get("VERSION_ID", "0").split(".")[0]
    return system.get("ID") == "debian" and number.isdigit() and int(number) >= 13


def _version_output(java: str) -> str:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr + answer.stdout
