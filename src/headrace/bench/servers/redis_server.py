"""A Redis server for benchmarks and tests: on 127.0.0.1, with its files in a directory of its own.

The server is the machine's own, or Debian's packages, unpacked into the cache: nothing is installed
for the whole machine, and no service starts.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headrace.bench.servers.processes import (
    ServerProcess,
    free_port,
    installed,
    needs,
    run,
    scratch_log,
)

PACKAGES = ("redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1")
PASSWORD = "seam-weir-sluice"


@dataclass
class RedisServer:
    """A running server with a password."""

    process: ServerProcess
    data: Path
    """The directory of its append-only file."""

    def restart(self) -> None:
        """Starts it again after a kill."""
        self.process.start()

    def url(self, *, password: str = PASSWORD, database: int = 0, options: str = "") -> str:
        return f"redis://:{password}@127.0.0.1:{self.process.port}/{database}{options}"


def redis_server(**settings: str) -> RedisServer:
    """Starts a server that writes every command to its disk before it answers.

    Settings of redis.conf replace the server's own: `appendfsync="everysec"`.
    """
    program, environment = _program()
    port, log = free_port(), scratch_log("redis")
    chosen = {
        "bind": "127.0.0.1",
        "port": str(port),
        "dir": str(log.parent),
        "save": "",
        "appendonly": "yes",
        "appendfsync": "always",
        "requirepass": PASSWORD,
        **settings,
    }
    words = [word for name, value in chosen.items() for word in (f"--{name}", value)]
    process = ServerProcess("redis", [program, *words], port, log, **environment)
    return RedisServer(process, log.parent)


def _program() -> tuple[Path, dict[str, str]]:
    found = shutil.which("redis-server")
    if found is not None:
        return Path(found), {}
    root = installed("redis-debian", _unpack_packages) / "root"
    libraries = sorted({str(lib.parent) for lib in root.glob("usr/lib/*/lib*.so*")})
    known = os.environ.get("LD_LIBRARY_PATH")
    path = ":".join([*libraries, *([known] if known else [])])
    return root / "usr/bin/redis-server", {"LD_LIBRARY_PATH": path}


def _unpack_packages(home: Path) -> None:
    """Fetches Debian's packages; needs no rights of root."""
    apt, unpack = needs("apt-get"), needs("dpkg-deb")
    try:
        run(apt, "-q", "download", *PACKAGES, cwd=home)
    except subprocess.SubprocessError:  # a machine without lists of packages: with its own ones
        for place in ("lists/partial", "archives/partial"):
            (home / place).mkdir(parents=True)
        own = [
            "-o", f"Dir::State::lists={home / 'lists'}", "-o", f"Dir::Cache={home}",
            "-o", "APT::Sandbox::User=",
        ]  # fmt: skip
        run(apt, "-q", *own, "update")
        run(apt, "-q", *own, "download", *PACKAGES, cwd=home)
        shutil.rmtree(home / "lists")
    for package in sorted(home.glob("*.deb")):
        run(unpack, "--extract", package, home / "root")
