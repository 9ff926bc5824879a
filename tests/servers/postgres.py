"""A Postgres server for tests: on 127.0.0.1, with its files in a temporary directory of its own.

The server is the machine's own, or Debian's, which root installs when it is missing. Postgres
refuses to run as root; then it runs as the user `postgres`.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.bench.servers.processes import CannotHave, ServerProcess, free_port, needs, run

USER = "postgres"
PASSWORD = "seam-weir-sluice"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",  # tests kill it as a process, and do not cut its power
    "max_connections": "60",
    "log_min_messages": "warning",
}


class _Process(ServerProcess):
    def start(self) -> None:
        """Starts it. The processes of a server that was killed end a moment later, and until then
        they hold its memory: Postgres refuses to start."""
        until = time.monotonic() + self.ready_s
        while True:
            try:
                super().start()
                return
            except CannotHave as error:
                if "still in use" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def _answers(self) -> bool:
        """It accepts connections before it is ready to answer."""
        if not super()._answers():
            return False
        import psycopg

        dsn = f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/postgres?connect_timeout=5"
        try:
            psycopg.connect(dsn).close()
        except psycopg.OperationalError:
            return False
        return True


@dataclass
class PostgresServer:
    """A running server with a password."""

    process: ServerProcess
    data: Path

    def dsn(self, database: str = "postgres", *, password: str = PASSWORD) -> str:
        """The data source name of a database."""
        return f"postgresql://{USER}:{password}@127.0.0.1:{self.process.port}/{database}"

    def stop(self) -> None:
        """Ends it for good, with its files."""
        self.process.kill()
        shutil.rmtree(self.data.parent, ignore_errors=True)


def postgres_server() -> PostgresServer:
    """Makes a new cluster of databases and starts its server."""
    programs = _programs()
    home = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
    data, secret, log = home / "data", home / "password", home / "log"
    secret.write_text(PASSWORD)
    log.touch()
    if os.geteuid() == 0:
        owner = pwd.getpwnam(USER)
        for path in (home, secret, log):
            os.chown(path, owner.pw_uid, owner.pw_gid)
    try:
        run(
            *_as_user(), programs / "initdb", "--no-sync", "--username", USER, "--encoding", "UTF8",
            "--locale", "C", "--auth", "scram-sha-256", "--pwfile", secret, "-D", data, cwd=home,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise CannotHave(f"initdb failed: {said.strip()[-300:]}") from error
    port = free_port()
    words = [f"-c{name}={value}" for name, value in {**_SETTINGS, "port": str(port)}.items()]
    command = [*_as_user(), programs / "postgres", "-D", data, *words]
    return PostgresServer(_Process("postgres", command, port, log), data)


def _as_user() -> list[str | Path]:
    if os.geteuid() != 0:
        return []
    # The kernel forgets, with the change of the user, that the server is to die with the tests.
    return [
        needs("setpriv"), f"--reuid={USER}", f"--regid={USER}", "--clear-groups",
        "--pdeathsig=KILL",
    ]  # fmt: skip


def _programs() -> Path:
    """The directory with initdb and postgres."""
    found = _find()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        found = _installed()
    if found is None:
        raise CannotHave("initdb and postgres are not installed")
    return found


def _installed() -> Path | None:
    """Debian's package, installed by whichever process comes first."""
    apt = ["apt-get", "-q", "-o", "DPkg::Lock::Timeout=300"]
    install = [*apt, "install", "-y", "--no-install-recommends", "postgresql"]
    try:
        with open(Path(tempfile.gettempdir()) / "headrace-postgres.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if _find() is None:
                try:
                    run(*install, DEBIAN_FRONTEND="noninteractive")
                except subprocess.SubprocessError:  # a machine without lists of packages
                    run(*apt, "update")
                    run(*install, DEBIAN_FRONTEND="noninteractive")
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise CannotHave(f"apt-get cannot install it: {said.strip()[-300:]}") from error
    return _find()


def _find() -> Path | None:
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    on_path = shutil.which("postgres")
    places = [*debian, *([Path(on_path).resolve().parent] if on_path else [])]
    for place in places:
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    return None


def postgres() -> PostgresServer:
    """One server for all tests of a process; skips where this machine cannot have one."""
    found = _started()
    if isinstance(found, CannotHave):
        pytest.skip(f"postgres: {found}")
    return found


@functools.cache
def _started() -> PostgresServer | CannotHave:
    if importlib.util.find_spec("psycopg") is None:
        return CannotHave("psycopg is not installed")
    try:
        server = postgres_server()
    except CannotHave as error:
        return error
    atexit.register(server.stop)
    return server
