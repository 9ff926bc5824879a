"""A real schema registry for tests: Apicurio, from Maven, which keeps the contract of Confluent's.

Version 3.0.9 is the last that runs on Java 17. Confluent's own registry is not in Maven Central,
and Karapace is not on PyPI.
"""

from __future__ import annotations

import functools
import os
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from headrace.bench.servers.processes import (
    JVM_READY_S,
    CannotHave,
    JvmProcess,
    free_port,
    installed,
    needs,
    run,
    scratch_log,
)

APICURIO = "3.0.9"


class RegistryServer:
    """A running registry; its schemas are in memory, and gone after a kill."""

    def __init__(self, process: JvmProcess) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{process.port}/apis/ccompat/v7"

    def wait(self) -> None:
        """The port is open before the registry answers."""
        until = time.monotonic() + JVM_READY_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/subjects", timeout=5):
                    return
            except (OSError, urllib.error.URLError) as error:
                if time.monotonic() > until:
                    raise CannotHave(f"the registry does not get ready: {error}") from error
            time.sleep(0.1)


def registry_server() -> RegistryServer:
    """The running registry; skips, by name and reason, if there can be none."""
    found = _started()
    if isinstance(found, CannotHave):
        pytest.skip(f"apicurio: {found}")
    return found


@functools.cache
def _started() -> RegistryServer | CannotHave:
    try:
        java = needs("java")
        home = installed(f"apicurio-{APICURIO}", _install)
        port = free_port()
        command = [java, "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-jar"]
        jar = next(home.glob("*-runner.jar"))
        environment = {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(port)}
        server = RegistryServer(
            JvmProcess("apicurio", [*command, jar], port, scratch_log("apicurio"), **environment)
        )
        server.wait()
        return server
    except CannotHave as error:
        return error


def _install(home: Path) -> None:
    artifact = f"io.apicurio:apicurio-registry-app:{APICURIO}:tar.gz:all"
    run(
        needs("mvn"), "--batch-mode", "--quiet", "dependency:copy", f"-Dartifact={artifact}",
        f"-DoutputDirectory={home}", cwd=Path(os.sep),
    )  # fmt: skip
    (packed,) = home.glob("*.tar.gz")
    run(needs("tar"), "-xzf", packed, "-C", home)
    packed.unlink()
