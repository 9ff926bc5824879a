"""A real Kafka for benchmarks and tests: one node, broker and controller in one JVM (KRaft).

It comes from Maven's artifacts, listens on 127.0.0.1 alone, and keeps its files in a directory of
its own. A start takes some seconds, and so does a start after a kill.
"""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable, Mapping
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
KAFKA = "4.3.1"


@dataclass
class KafkaServer:
    """A running broker."""

    process: ServerProcess
    secured: str = ""
    """The address that wants a password, if there is one."""

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.process.port}"

    def restart(self) -> None:
        """Starts it again after a kill, and waits until it answers."""
        self.process.start()
        wait_until_ready(self.servers)

    def admin(self) -> Any:
        return _admin(self.servers)

    def admin_do(self, act: Callable[[Any], Any]) -> Any:
        """Does something with a client that lives until it is done."""
        admin = self.admin()
        return act(admin)

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Makes a topic; `config` has `_` where names of settings have a dot."""
        create_topic(self.servers, topic, partitions, **config)

    def widen(self, topic: str, partitions: int) -> None:
        """Gives a topic more partitions."""
        from confluent_kafka.admin import NewPartitions

        admin = self.admin()
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(60)
        _await_topic(self.servers, topic, partitions)

    def delete(self, topic: str) -> None:
        """Deletes a topic, and waits until it is gone."""
        admin = self.admin()
        admin.delete_topics([topic], operation_timeout=60)[topic].result(60)
        until = time.monotonic() + JVM_READY_S
        while topic in admin.list_topics(timeout=10).topics and time.monotonic() < until:
            time.sleep(0.05)


def create_topic(servers: str, topic: str, partitions: int = 1, **config: str) -> None:
    """Makes a topic; `config` has `_` where names of settings have a dot."""
    from confluent_kafka.admin import NewTopic

    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin = _admin(servers)  # which must live until it has answered
    wanted = [NewTopic(topic, partitions, 1, config=settings)]
    admin.create_topics(wanted, operation_timeout=60)[topic].result(60)
    _await_topic(servers, topic, partitions)


def _await_topic(servers: str, topic: str, partitions: int) -> None:
    """The controller has made it; the broker may not know of it yet."""
    admin, until = _admin(servers), time.monotonic() + JVM_READY_S
    while time.monotonic() < until:
        found = admin.list_topics(timeout=10).topics.get(topic)
        known = {} if found is None else found.partitions
        if len(known) == partitions and all(each.leader >= 0 for each in known.values()):
            return
        time.sleep(0.05)
    raise CannotHave(f"the broker does not show its topic {topic}")


def kafka_server(
    settings: Mapping[str, object] | None = None,
    *,
    users: Mapping[str, str] | None = None,
    quick_start: bool = True,
) -> KafkaServer:
    """Starts a broker. `settings` are added to its own; `quick_start`: it runs slower for that.

    `users`: passwords by name; it then listens at a second port, for these users alone.
    """
    log = scratch_log("kafka")
    port = free_port()
    secured = free_port() if users else 0
    known = {**_secured(port, secured, users or {}), **(settings or {})}
    command = broker_command(log.parent, port, known, quick_start=quick_start)
    process = JvmProcess("kafka", command, port, log)
    wait_until_ready(f"127.0.0.1:{port}")
    return KafkaServer(process, f"127.0.0.1:{secured}" if users else "")


def _secured(port: int, secured: int, users: Mapping[str, str]) -> dict[str, object]:
    """The settings of a second port, which wants a name and a password."""
    if not users:
        return {}
    known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{secured},"
        "CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{secured}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{login} {known};",
    }


def broker_command(
    directory: Path,
    port: int,
    settings: Mapping[str, object] | None = None,
    *,
    quick_start: bool = True,
) -> list[str]:
    """Makes a broker ready whose files are in a directory; returns the command that runs it."""
    java = needs("java")

    def make(home: Path) -> None:
        run(
            needs("mvn"), "--batch-mode", "--quiet", "--file", HERE / "kafka-pom.xml",
            "dependency:copy-dependencies", "-DincludeScope=runtime",
            f"-DoutputDirectory={home / 'lib'}", f"-Dkafka={KAFKA}",
        )  # fmt: skip

    _require_client()
    home = installed(f"kafka-{KAFKA}", make)
    written = _write_settings(directory, port, free_port(), settings or {})
    speed = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"] if quick_start else []
    command = [java, "-Xmx768m", *speed, "-cp", f"{home / 'lib'}/*"]
    if not (directory / "data" / "meta.properties").exists():
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # An id that begins with a hyphen looks like an option.
        run(
            *command, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}",
            "-c", written, cwd=directory,
        )  # fmt: skip
    return [*command, "kafka.Kafka", str(written)]


def _write_settings(
    directory: Path, port: int, controller: int, more: Mapping[str, object]
) -> Path:
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": directory / "data",
        # One broker holds the one copy of everything.
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        # Retention goes by the times of records, and those of tests are of any age.
        "log.retention.ms": -1,
        "auto.create.topics.enable": "false",
        "log.retention.check.interval.ms": 500,
        "log.initial.task.delay.ms": 500,
        "file.delete.delay.ms": 100,
        **more,
    }
    path = directory / "server.properties"
    lines = (f"{name}={value}\n" for name, value in settings.items())
    path.write_text("".join(lines).replace("{controller}", str(controller)))
    return path


def _require_client() -> None:
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        raise CannotHave(
            "confluent-kafka is not installed: pip install 'headrace[kafka]'"
        ) from error


def _admin(servers: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def wait_until_ready(servers: str, runs: Callable[[], bool] = lambda: True) -> None:
    """The port is open before topics can be made. `runs`: whether the broker is still there."""
    until = time.monotonic() + JVM_READY_S
    while True:
        if not runs():
            raise CannotHave("kafka does not start")
        try:
            if _admin(servers).list_topics(timeout=5).brokers:
                return
        except Exception as error:
            if time.monotonic() > until:
                raise CannotHave(f"kafka does not get ready: {error}") from error
        time.sleep(0.1)
