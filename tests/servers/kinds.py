"""The servers that stores are tested with. Each listens on 127.0.0.1 and has its own directory.

`ministack` installs in seconds and is part of `make test`. The others are for `make test-servers`:
`versitygw` (a real S3 server, on files), `azurite` (Microsoft's emulator of Azure), `hdfs` (the
real name node and data node of Hadoop, in one JVM).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path

from headrace.bench.servers.processes import (
    CannotHave,
    ServerProcess,
    free_port,
    installed,
    needs,
    run,
    scratch_log,
)
from headrace.bench.servers.s3 import Server, ministack, versitygw
from headrace.bench.servers.signing import put_container

HERE = Path(__file__).parent
AZURITE = "3.37.0"
HADOOP = "3.5.0"
AZURITE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
"""The key that Microsoft publishes for its emulator."""


@functools.cache
def azurite() -> Server:
    def make(home: Path) -> None:
        run(
            needs("npm"), "install", "--silent", "--no-audit", "--no-fund",
            "--prefix", home, f"azurite@{AZURITE}",
        )  # fmt: skip

    home = installed(f"azurite-{AZURITE}", make)
    port, log = free_port(), scratch_log("azurite")
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
    port, log = free_port(), scratch_log("hdfs")
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


def _make_container(endpoint: str, account: str, container: str) -> None:
    put_container(endpoint, account, container, AZURITE_KEY)
