"""The servers that stores are tested with. Each listens on 127.0.0.1 and has its own directory.

`ministack` installs in seconds and is part of `make test`. The others are for `make test-servers`:
`versitygw` (a real S3 server, on files), `azurite` (Microsoft's emulator of Azure), `hdfs` (the
real name node and data node of Hadoop, in one JVM).
"""

from __future__ import annotations

import functools
import os
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers.processes import (
    CannotHave,
    ServerProcess,
    free_port,
    installed,
    needs,
    run,
)

HERE = Path(__file__).parent
MINISTACK = "1.5.33"
VERSITYGW = "v1.8.0"
AZURITE = "3.37.0"
HADOOP = "3.5.0"
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The key that Microsoft publishes for its emulator."""


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
        "ministack", [home / "bin/ministack"], port, _scratch("ministack"),
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
    port, log = free_port(), _scratch("versitygw")
    data = log.parent / "data"
    data.mkdir()
    process = ServerProcess(
        "versitygw",
        [home / "bin/versitygw", "--port", f"127.0.0.1:{port}", "posix", data],
        port, log, ROOT_ACCESS_KEY="test", ROOT_SECRET_KEY="testtest",
    )  # fmt: skip
    return _s3("versitygw", process, "test", "testtest")


@functools.cache
def azurite() -> Server:
    def make(home: Path) -> None:
        run(
            needs("npm"), "install", "--silent", "--no-audit", "--no-fund",
            "--prefix", home, f"azurite@{AZURITE}",
        )  # fmt: skip

    home = installed(f"azurite-{AZURITE}", make)
    port, log = free_port(), _scratch("azurite")
    process = ServerProcess(
        "azurite",
        [
            home / "node_modules/.bin/azurite-blob", "--silent", "--blobHost", "127.0.0.1",
            "--blobPort", str(port), "--location", log.parent / "data", "--skipApiVersionCheck",
        ],
        port, log,
    )  # fmt: skip
    account = "devstoreaccount1"
    endpoint = f"http://127.0.0.1:{port}/{account}"
    _make_container(endpoint, account, "tests")
    return Server(
        "azurite",
        process,
        lambda prefix: f"az://tests/{prefix}?account={account}&endpoint={endpoint}&allow_http=true",
        {"AZURE_STORAGE_ACCOUNT_KEY": AZURITE_KEY},
    )


@functools.cache
def hdfs() -> Server:
    java = needs("java")

    def make(home: Path) -> None:
        run(
            needs("mvn"), "--batch-mode", "--quiet", "--file", HERE / "hdfs/pom.xml",
            "dependency:copy-dependencies", f"-DoutputDirectory={home / 'lib'}",
            f"-Dhadoop={HADOOP}",
        )  # fmt: skip

    home = installed(f"hdfs-{HADOOP}", make)
    port, log = free_port(), _scratch("hdfs")
    ready = log.parent / "ready"
    process = ServerProcess(
        "hdfs",
        [
            java, "-Xmx512m", "-cp", f"{home / 'lib'}/*", HERE / "hdfs/Mini.java",
            log.parent / "data", str(port), ready,
        ],
        port, log,
    )  # fmt: skip
    until = time.monotonic() + 120
    while not ready.exists():  # The name node listens before its data node has reported.
        if time.monotonic() > until:
            raise CannotHave("hdfs does not get ready")
        time.sleep(0.1)
    return Server(
        "hdfs",
        process,
        lambda prefix: f"hdfs://127.0.0.1:{port}/{prefix}?replication=1",
        {"HADOOP_USER_NAME": "tests"},
    )


KINDS: dict[str, Callable[[], Server]] = {
    "ministack": ministack,
    "versitygw": versitygw,
    "azurite": azurite,
    "hdfs": hdfs,
}


def _s3(name: str, process: ServerProcess, key: str, secret: str) -> Server:
    environment = {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}
    endpoint = f"http://127.0.0.1:{process.port}"
    _make_bucket(endpoint, "tests", environment)
    return Server(
        name,
        process,
        lambda prefix: f"s3://tests/{prefix}?endpoint={endpoint}&region=us-east-1&allow_http=true",
        environment,
    )


def _make_bucket(endpoint: str, bucket: str, environment: dict[str, str]) -> None:
    """Creates a bucket, with a request signed as S3 wants it: clients of objects cannot."""
    from tests.servers.signing import put_bucket

    put_bucket(
        endpoint, bucket, environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]
    )


def _make_container(endpoint: str, account: str, container: str) -> None:
    from tests.servers.signing import put_container

    put_container(endpoint, account, container, AZURITE_KEY)


def _scratch(name: str) -> Path:
    """The log of a server, in a directory of its own."""
    base = os.environ.get("HEADRACE_SERVERS_SCRATCH")
    directory = Path(tempfile.mkdtemp(prefix=f"headrace-{name}-", dir=base))
    return directory / "log"
