"""A cluster whose executors share nothing but the network.

Each worker of the cluster, with its executor, runs in a mount namespace of its own. It sees the
machine's files, but cannot write to them; what it writes lies on a private filesystem in memory,
which no other process sees.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.spark.support import SHORT_LIVED_JVM

from headrace.bench.cluster import Cluster, wait_for

_UNSHARE = ["unshare", "--mount", "--propagation", "private"]
_VIEW = 'mount -t tmpfs tmpfs "$1" && mount -o remount,ro,bind / && shift && exec "$@"'


def can_be_apart() -> bool:
    """Whether this user may make mount namespaces here."""
    tried = [*_UNSHARE, "mount", "-o", "remount,ro,bind", "/"]
    try:
        return subprocess.run(tried, capture_output=True).returncode == 0
    except OSError:
        return False


class ApartCluster(Cluster):
    """One worker with one executor per view of the files."""

    def add_worker(self) -> None:
        for number in range(self.executors):
            own = self.directory / f"own-{number}"
            own.mkdir()
            name = f"worker-{number}"
            self._launch(
                name, "--cores", "1", "--memory", "640m", "--work-dir", str(own / "work"), self.url
            )
            wait_for(lambda name=name: "Successfully registered" in self.log(name), name)

    def command_of(self, name: str, command: list[str]) -> list[str]:
        if not name.startswith("worker"):
            return command
        own = self._own(name)
        apart = [*_UNSHARE, "sh", "-c", _VIEW, "sh"]
        return [*apart, str(own), *command]

    def environment_of(self, name: str) -> dict[str, str]:
        found = super().environment_of(name)
        if name.startswith("worker"):
            own = str(self._own(name))
            # Executors inherit these.
            found |= {
                "SPARK_LOCAL_DIRS": own,
                "TMPDIR": own,
                "JAVA_TOOL_OPTIONS": f"{SHORT_LIVED_JVM} -Djava.io.tmpdir={own}",
            }
        return found

    def _own(self, name: str) -> Path:
        return self.directory / f"own-{name.partition('-')[2]}"


@contextmanager
def apart_cluster(directory: Path, executors: int) -> Iterator[ApartCluster]:
    """A cluster for as long as the block runs."""
    made = ApartCluster(directory, executors, "512m")
    try:
        made.start()
        yield made
    finally:
        made.stop()
