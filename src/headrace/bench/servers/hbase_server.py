"""A real HBase for benchmarks and tests: master, region server and ZooKeeper in one JVM.

It comes from Maven's artifacts, listens on 127.0.0.1 alone, and keeps its files in a directory of
its own. From nothing to a table takes half a minute, a start after a kill a little longer.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.bench.servers.processes import (
    JVM_READY_S,
    CannotHave,
    JvmProcess,
    ServerProcess,
    free_port,
    installed,
    needs,
    run,
    scratch_log,
)

HERE = Path(__file__).parent
HBASE = "2.6.4-hadoop3"

_OPENED = (
    "java.nio", "sun.nio.ch", "java.lang", "jdk.internal.ref", "java.lang.reflect", "java.util",
    "java.util.concurrent",
)  # fmt: skip


@dataclass
class HBaseServer:
    """A running HBase."""

    process: ServerProcess

    def url(self, table: str, options: str = "") -> str:
        return f"hbase://127.0.0.1:{self.process.port}/{table}{options}"

    def restart(self) -> None:
        """Starts it again after a kill, and waits until it answers."""
        self.process.start()
        _wait_until_ready(self.process.port)


def hbase_server(*, quick_start: bool = True) -> HBaseServer:
    """Starts a server. `quick_start`: the JVM starts sooner and runs slower."""
    java = needs("java")

    def make(home: Path) -> None:
        run(
            needs("mvn"), "--batch-mode", "--quiet", "--file", HERE / "hbase-pom.xml",
            "dependency:copy-dependencies", "-DincludeScope=runtime",
            f"-DoutputDirectory={home / 'lib'}", f"-Dhbase={HBASE}",
        )  # fmt: skip

    home = installed(f"hbase-{HBASE}", make)
    log = scratch_log("hbase")
    ports = {"master": free_port(), "regionserver": free_port(), "zookeeper": free_port()}
    _write_settings(log.parent, ports)
    opened = [word for name in _OPENED for word in ("--add-opens", f"java.base/{name}=ALL-UNNAMED")]
    # A million keys of a benchmark do not fit into the heap of tests.
    speed = (
        ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx768m"] if quick_start else ["-Xmx2g"]
    )
    process = JvmProcess(
        "hbase",
        [
            java, *speed, *opened,
            "--add-exports", "java.base/jdk.internal.misc=ALL-UNNAMED",
            "-cp", f"{log.parent / 'conf'}:{home / 'lib'}/*",
            "org.apache.hadoop.hbase.master.HMaster", "start",
        ],
        ports["master"], log,
    )  # fmt: skip
    _wait_until_ready(process.port)
    return HBaseServer(process)


def _write_settings(directory: Path, ports: dict[str, int]) -> None:
    settings = {
        "hbase.rootdir": f"file://{directory}/data/root",
        "hbase.tmp.dir": f"{directory}/data/tmp",
        "hbase.zookeeper.property.dataDir": f"{directory}/data/zookeeper",
        # Without HDFS below it, HBase would not start: it cannot know whether a file is synced.
        "hbase.unsafe.stream.capability.enforce": "false",
        "hbase.wal.provider": "filesystem",
        "hbase.zookeeper.quorum": "127.0.0.1",
        "hbase.zookeeper.property.clientPort": ports["zookeeper"],
        "hbase.zookeeper.property.clientPortAddress": "127.0.0.1",
        # A busy machine must not end a session; a killed server waits for its own to end.
        "zookeeper.session.timeout": 60_000,
        "hbase.zookeeper.property.maxSessionTimeout": 60_000,
        "hbase.master.hostname": "127.0.0.1",
        "hbase.regionserver.hostname": "127.0.0.1",
        "hbase.master.ipc.address": "127.0.0.1",
        "hbase.regionserver.ipc.address": "127.0.0.1",
        "hbase.master.port": ports["master"],
        "hbase.regionserver.port": ports["regionserver"],
        "hbase.master.info.port": -1,
        "hbase.regionserver.info.port": -1,
        "hbase.master.wait.on.regionservers.mintostart": 1,
        "hbase.master.wait.on.regionservers.timeout": 1000,
        "hbase.master.wait.on.regionservers.interval": 200,
        "hbase.regionserver.handler.count": 6,
    }
    rows = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>\n"
        for name, value in settings.items()
    )
    (directory / "conf").mkdir()
    (directory / "conf/hbase-site.xml").write_text(f"<configuration>\n{rows}</configuration>\n")
    (directory / "conf/log4j.properties").write_text(
        "log4j.rootLogger=INFO,console\n"
        "log4j.appender.console=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.console.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.console.layout.ConversionPattern=%d %p %c{2}: %m%n\n"
    )


def _wait_until_ready(port: int) -> None:
    """The master answers before regions can be read and tables made."""
    until = time.monotonic() + JVM_READY_S
    while True:
        try:
            if _initialized(port):
                return
        except Exception as error:
            failed: Any = error
            if time.monotonic() > until:
                raise CannotHave(f"hbase does not get ready: {failed}") from error
        time.sleep(0.25)


def _initialized(port: int) -> bool:
    try:
        from headrace.state.backends.hbase.messages import Master_pb2
        from headrace.state.backends.hbase.table import Table
        from headrace.state.backends.hbase.wire import HBaseCluster
    except ImportError as error:
        raise CannotHave("hbase-driver is not installed: pip install 'headrace[hbase]'") from error
    cluster = HBaseCluster([("127.0.0.1", port)], 5.0)
    request, answer = Master_pb2.IsMasterRunningRequest(), Master_pb2.IsMasterRunningResponse
    cluster.to_master("IsMasterRunning", request, answer)
    return Table(cluster, b"hbase", b"namespace").identity() != ""
