"""`headrace kafka`: a broker for trying out, and a look into topics. For production there is Kafka.

`send` and `read` work with any broker that needs no password.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from headrace.errors import HeadraceError
from headrace.kafka_client import library

SERVERS = "127.0.0.1:9092"
_ANSWER_S = 30.0


@click.group(
    epilog="""\b
Examples:
  headrace kafka start --topic orders:2 --topic totals
  headrace kafka send orders orders.jsonl --key user
  headrace kafka read totals
  headrace kafka stop"""
)
def kafka() -> None:
    """A Kafka broker for trying out, on 127.0.0.1, and a look into its topics."""


def _servers(command: Any) -> Any:
    return click.option(
        "--servers", metavar="HOST:PORT", default=SERVERS, show_default=True, help="The broker."
    )(command)


def _directory(command: Any) -> Any:
    return click.option(
        "--dir", "directory", type=click.Path(file_okay=False, path_type=Path),
        default=Path("out/kafka"), show_default=True, help="Where the broker keeps its files.",
    )(command)  # fmt: skip


@kafka.command(
    epilog="""\b
Examples:
  headrace kafka start --topic orders:2 --topic totals"""
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=9092,
    show_default=True,
    help="Where it listens.",
)
@click.option(
    "--topic", "topics", metavar="NAME[:PARTITIONS]", multiple=True,
    help="A topic to make, unless it is there; may be given several times.",
)  # fmt: skip
@_directory
def start(port: int, topics: tuple[str, ...], directory: Path) -> None:
    """Start a broker, which goes on until `headrace kafka stop`.

    Its jars come from Maven, once (45 MB): this needs Java 17 and mvn. It has one node, no
    password, and listens on 127.0.0.1 alone.
    """
    from headrace.bench.servers.kafka_server import create_topic
    from headrace.bench.servers.local_kafka import LocalKafka
    from headrace.bench.servers.processes import CannotHave

    wanted = [_topic(each) for each in topics]
    broker = LocalKafka(directory)
    found = broker.running()
    try:
        if found is None:
            click.echo("Starting Kafka (the first start fetches it) ...", err=True)
            broker.start(port)
        elif found.port != port:
            raise HeadraceError(
                f"the broker of {directory} runs at port {found.port}: stop it first"
            )
        servers = f"127.0.0.1:{port}"
        there = _client("AdminClient", servers).list_topics(timeout=_ANSWER_S).topics
        for name, partitions in wanted:
            if name not in there:
                _create(create_topic, servers, name, partitions or 1)
            elif partitions not in (None, has := len(there[name].partitions)):
                click.echo(f"The topic {name} is there already, with {has} partitions.", err=True)
    except CannotHave as error:
        raise HeadraceError(
            f"no broker can be started here: {error}. Any other broker does: give its address with "
            "--servers"
        ) from error
    click.echo(f"Kafka listens on {servers}. Its files are in {directory}.")


@kafka.command(
    epilog="""\b
Examples:
  headrace kafka stop"""
)
@_directory
def stop(directory: Path) -> None:
    """Stop the broker. What it has is kept for the next start."""
    from headrace.bench.servers.local_kafka import LocalKafka

    ran = LocalKafka(directory).stop()
    click.echo("Kafka has stopped." if ran else f"No broker of {directory} runs.")


@kafka.command(
    epilog="""\b
Examples:
  headrace kafka send orders orders.jsonl --key user
  headrace kafka send orders --servers broker:9092 < orders.jsonl"""
)
@click.argument("topic")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--key", metavar="FIELD", help="The field of a JSON object that becomes the key.")
@_servers
def send(topic: str, file: Any, key: str | None, servers: str) -> None:
    """Send the lines of FILE (or of standard input) to TOPIC, one message each."""
    _require(topic, servers)
    producer = _client("Producer", servers, **{"linger.ms": 5, "partitioner": "murmur2_random"})
    failed: list[str] = []

    def told(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(str(error))

    count, wrong = 0, ""
    for number, line in enumerate(file, 1):
        data = line.rstrip(b"\r\n")
        if data:
            try:
                made = None if key is None else _key(data, key)
                while True:
                    try:
                        producer.produce(topic, data, made, on_delivery=told)
                        break
                    except BufferError:
                        producer.poll(0.1)
            except ValueError as error:
                wrong = f"line {number} {error}"
                break
            except library().KafkaException as error:
                wrong = f"line {number}: {error.args[0].str()}"
                break
            count += 1
    left = producer.flush(_ANSWER_S)
    if left or failed:
        said = failed[0] if failed else f"{servers} does not answer"
        raise HeadraceError(f"{left or len(failed)} of {count} messages were not sent: {said}")
    sent = f"{count} {'message' if count == 1 else 'messages'} sent to {topic}."
    if wrong:
        raise HeadraceError(f"{wrong}. Before it, {sent}")
    click.echo(sent)


@kafka.command(
    epilog="""\b
Examples:
  headrace kafka read totals
  headrace kafka read totals --follow --servers broker:9092"""
)
@click.argument("topic")
@click.option("--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@_servers
def read(topic: str, follow: bool, servers: str) -> None:
    """Show the committed messages of TOPIC, each as `key<TAB>value`."""
    for message in _committed(topic, servers, follow=follow):
        key, value = message.key(), message.value()
        shown = [b"" if key is None else key, b"null" if value is None else value]
        sys.stdout.write(
            "\t".join(each.decode("utf-8", "backslashreplace") for each in shown) + "\n"
        )
        sys.stdout.flush()


def _committed(topic: str, servers: str, *, follow: bool) -> Iterator[Any]:
    partitions = _require(topic, servers)
    reader = _client(
        "Consumer", servers,
        **{
            "group.id": "headrace-read", "enable.auto.commit": False,
            "isolation.level": "read_committed", "enable.partition.eof": not follow,
            # Otherwise it goes to the end where old messages are deleted while it reads.
            "auto.offset.reset": "earliest",
        },
    )  # fmt: skip
    place, first = library().TopicPartition, library().OFFSET_BEGINNING
    reader.assign([place(topic, number, first) for number in partitions])
    left, until = set(partitions), time.monotonic() + _ANSWER_S
    while left:
        for message in reader.consume(1000, 0.2):
            error = message.error()
            if error is None:
                yield message
            elif error.name() == "_PARTITION_EOF":
                left.discard(message.partition())
            elif not error.retriable():
                raise HeadraceError(f"{topic} cannot be read: {error}")
            until = time.monotonic() + _ANSWER_S
        if not follow and time.monotonic() > until:
            raise HeadraceError(f"{servers} does not answer")
    reader.close()


def _require(topic: str, servers: str) -> list[int]:
    """The partitions of a topic that must be there."""
    try:
        topics = _client("AdminClient", servers).list_topics(timeout=_ANSWER_S).topics
    except library().KafkaException as error:
        raise HeadraceError(
            f"no broker answers at {servers} ({error.args[0].name()}): start one with `headrace "
            "kafka start`, or say where it is with --servers"
        ) from None
    if topic not in topics:
        known = sorted(name for name in topics if not name.startswith("__"))
        raise HeadraceError(
            f"{servers} has no topic {topic!r}; there are: {', '.join(known) or 'none'}. "
            f"Make it with `headrace kafka start --topic {topic}`"
        )
    return sorted(topics[topic].partitions)


def _client(kind: str, servers: str, **config: Any) -> Any:
    made = library("confluent_kafka.admin" if kind == "AdminClient" else "confluent_kafka")
    return getattr(made, kind)({"bootstrap.servers": servers, "log_level": 0, **config})


def _create(create: Any, servers: str, name: str, partitions: int) -> None:
    try:
        create(servers, name, partitions)
    except library().KafkaException as error:
        raise HeadraceError(f"--topic {name}: {error.args[0].str()}") from None


def _topic(given: str) -> tuple[str, int | None]:
    name, _, partitions = given.partition(":")
    if not name or (partitions and (not partitions.isdigit() or int(partitions) < 1)):
        raise click.UsageError(f"--topic is NAME or NAME:PARTITIONS, not {given!r}")
    return name, int(partitions) if partitions else None


def _key(data: bytes, field: str) -> bytes:
    try:
        found = json.loads(data)[field]
        return found.encode() if isinstance(found, str) else json.dumps(found).encode()
    except (ValueError, KeyError, TypeError, RecursionError):
        shown = data[:80].decode("utf-8", "backslashreplace")
        raise ValueError(f"is no JSON object with a field {field!r}: {shown}") from None
