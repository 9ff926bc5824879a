"""We listen on nothing unless asked, and then on loopback only, as the Spark does that we start."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from tests.unit.engine.support import counting, driver_of, run

import headrace
from headrace.cli.spark import settings_for
from headrace.store.disk import DiskStore

_opened: list[str] = []
_watching = [False]


def _audit(event: str, args: Any) -> None:
    if _watching[0] and event in ("socket.bind", "socket.listen"):
        _opened.append(f"{event} {args}")


sys.addaudithook(_audit)


def test_a_run_opens_no_socket_that_others_can_reach(tmp_path: Path) -> None:
    _watching[0] = True
    try:
        assert run(driver_of(counting(range(20)), DiskStore(tmp_path))) > 2
    finally:
        _watching[0] = False
    assert _opened == []


USES_SOCKETS = {
    "engine/spark/python_worker.py": "sets an option on the connections that Spark has opened",
    "bench/cluster.py": "asks for free loopback ports for the Spark that a benchmark starts",
    "state/backends/hbase/wire.py": "connects to the servers of HBase",
    "bench/servers/processes.py": "asks for a free loopback port for a server, and connects to it",
}


LISTENS_WHERE_ASKED = {
    "observe/local_server.py": "--metrics-port, headrace ui",
}
"""On loopback only."""


def test_no_other_module_of_ours_can_listen() -> None:
    listens = re.compile(
        r"\.listen\(|HTTPServer|socketserver|start_server|create_server|^import socket|xmlrpc", re.M
    )
    root = Path(headrace.__file__).parent
    found = {str(f.relative_to(root)) for f in root.rglob("*.py") if listens.search(f.read_text())}
    assert found <= {*USES_SOCKETS, *LISTENS_WHERE_ASKED}
    for name in LISTENS_WHERE_ASKED:
        made = re.findall(r"super\(\).__init__\(\((.*?),", (root / name).read_text())
        assert made == ['"127.0.0.1"'], name
    for name in USES_SOCKETS:
        assert not re.search(r"\.listen\(|create_server", (root / name).read_text())


def test_spark_started_by_our_command_listens_on_loopback_without_its_ui(tmp_path: Path) -> None:
    settings = settings_for("local[2,4]", tmp_path)
    assert settings["spark.driver.bindAddress"] == settings["spark.driver.host"] == "127.0.0.1"
    assert settings["spark.ui.enabled"] == "false"
    assert settings_for("spark://host:7077", tmp_path)["spark.ui.enabled"] == "false"
