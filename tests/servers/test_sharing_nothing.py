"""Executors that share nothing but the store run a pipeline, lose one of them, and go on."""

from __future__ import annotations

import os
import random
from pathlib import Path

import psutil
import pytest
from tests.servers.apart import apart_cluster, can_be_apart
from tests.servers.stores import chosen, server_of
from tests.servers.test_lives_on_servers import (
    Life,
    Places,
    check_all_once,
    kill_an_executor,
    numbered_lines,
)

from headrace.bench.cluster import wait_for

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        "HEADRACE_SERVERS" not in os.environ, reason="takes a minute: `make test-servers`"
    ),
    pytest.mark.skipif(not can_be_apart(), reason="this user may not make mount namespaces"),
]
EXECUTORS = 3


@pytest.mark.parametrize("kind", chosen())
def test_executors_that_share_only_the_store_lose_one_of_them_and_go_on(
    kind: str, tmp_path: Path
) -> None:
    places = Places(server_of(kind).new_url())
    places.write(numbered_lines())
    with apart_cluster(tmp_path / "cluster", EXECUTORS) as running:
        life = Life("lives", places, running.url)
        try:
            assert life.next_epoch(), life.errors
            workers = wait_for(running.python_workers, "Python workers")
            check_cannot_share(workers[0], tmp_path)
            assert kill_an_executor(running, random.Random(1))
            for _ in range(3):
                assert life.next_epoch(), life.errors
            life.end()
        finally:
            life.kill()
    check_all_once(places.rows())


def check_cannot_share(worker: int, directory: Path) -> None:
    """The worker's root is read-only, and its own directory is not this machine's."""
    mounts = Path(f"/proc/{worker}/mounts").read_text()
    root = [line for line in mounts.splitlines() if line.split()[1] == "/"][-1]
    assert root.split()[3].split(",")[0] == "ro", root
    own = psutil.Process(worker).environ()["SPARK_LOCAL_DIRS"]
    assert own.startswith(str(directory)) and not os.path.exists(own), "it is only seen there"
