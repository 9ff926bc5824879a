"""S3 servers for benchmarks and tests.

`ministack` installs in seconds: an emulator in memory, one request at a time. `versitygw` is a real
server on files, which the Go tool chain builds in a minute or two.
"""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from headrace.bench.servers.processes import (
    ServerProcess,
    free_port,
    installed,
    needs,
    run,
    scratch_log,
)
from headrace.bench.servers.signing import put_bucket

HERE = Path(__file__).parent
MINISTACK = "1.5.33"
VERSITYGW = "v1.8.0"


@dataclass
class Server:
    """A running server, and how to name a place in it."""

    name: str
    process: ServerProcess
    url: Callable[[str], str]
    """Prefix -> URL."""
    environment: dict[str, str] = field(default_factory=dict)
    """The credentials that its clients need."""

    def new_url(self) -> str:
        """A place that no other test uses."""
        return self.url(f"t-{uuid.uuid4().hex[:12]}")


@functools.cache
def ministack() -> Server:
    def make(home: Path) -> None:
        run("python3", "-m", "venv", home)
        run(
            home / "bin/pip", "install", "--quiet", "--disable-pip-version-check",
            "--requirement", HERE / "ministack-requirements.txt",
        )  # fmt: skip

    home = installed(f"ministack-{MINISTACK}", make)
    port = free_port()
    process = ServerProcess(
        "ministack", [home / "bin/ministack"], port, scratch_log("ministack"),
        BIND_HOST="127.0.0.1", GATEWAY_PORT=str(port),
    )  # fmt: skip
    return _s3("ministack", process, "test", "testtest")


@functools.cache
def versitygw() -> Server:
    def make(home: Path) -> None:
        go = needs("go")
        run(
            go, "install", f"github.com/versity/versitygw/cmd/versitygw@{VERSITYGW}",
            GOFLAGS="-mod=mod", GOTOOLCHAIN="local", GOBIN=str(home / "bin"),
        )  # fmt: skip

    home = installed(f"versitygw-{VERSITYGW}", make)
    port, log = free_port(), scratch_log("versitygw")
    data = log.parent / "data"
    data.mkdir()
    process = ServerProcess(
        "versitygw",
        [home / "bin/versitygw", "--port", f"127.0.0.1:{port}", "posix", data],
        port, log, ROOT_ACCESS_KEY="test", ROOT_SECRET_KEY="testtest",
    )  # fmt: skip
    return _s3("versitygw", process, "test", "testtest")


def _s3(name: str, process: ServerProcess, key: str, secret: str) -> Server:
    environment = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
    endpoint = f"http://127.0.0.1:{process.port}"
    put_bucket(endpoint, "tests", key, secret)
    return Server(
        name,
        process,
        lambda prefix: f"s3://tests/{prefix}?endpoint={endpoint}&region=us-east-1&allow_http=true",
        environment,
    )
