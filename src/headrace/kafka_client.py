"""Clients of Kafka, for the source and the sink: settings, secrets, errors, questions to brokers.

Invariants:
- No value of an option appears in a message, a log or a `repr`: an option may be a password. What a
  client or a broker says is shown without them (`ClientSettings.said`).
- A broker that does not answer is an outage, never a missing topic.
- A topic is known by its id: a topic that was deleted and made again has the same name, and other
  records at the same offsets.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from headrace.errors import HeadraceError, InvalidPipeline, StoreError

_CALLBACKS = ("error_cb",)
ANSWER_S = 15.0
"""How long a broker may take to answer a question; then it is away."""
_HEARD_S = 60.0
"""So long the reason counts why a client could not connect."""
_HIDDEN = "***"
_PLAIN = {
    "client.id", "client.rack", "security.protocol", "sasl.mechanism", "sasl.mechanisms", "debug",
    "compression.type", "partitioner", "linger.ms", "acks", "true", "false",
}  # fmt: skip
"""Options whose values hide nothing; the values of all others are struck out of messages."""

AWAY = (
    "_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT",
    "_RESOLVE", "_WAIT_COORD", "_WAIT_CACHE", "_NODE_UPDATE", "_DESTROY", "_UNKNOWN_BROKER",
    "_RETRY", "_NOENT", "REQUEST_TIMED_OUT", "BROKER_NOT_AVAILABLE", "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION", "REPLICA_NOT_AVAILABLE", "NETWORK_EXCEPTION",
    "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR",
    "NOT_CONTROLLER", "KAFKA_STORAGE_ERROR", "OFFSET_NOT_AVAILABLE", "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "CONCURRENT_TRANSACTIONS", "UNSTABLE_OFFSET_COMMIT", "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    "THROTTLING_QUOTA_EXCEEDED", "_PURGE_INFLIGHT", "_PURGE_QUEUE", "_STATE",
)  # fmt: skip
"""The names of errors that may end by themselves."""


def library(module: str = "confluent_kafka") -> Any:
    """The client library, which is an extra."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InvalidPipeline(
            f"Kafka needs confluent-kafka, which cannot be imported ({error}): "
            "pip install 'headrace[kafka]'"
        ) from error


class ClientSettings:
    """Where the brokers are, and the options of a client, whose values are never shown."""

    __slots__ = ("_options", "servers")

    def __init__(
        self, servers: Any, options: Mapping[str, Any] | None, own: Iterable[str], where: str
    ) -> None:
        """`own`: options that Headrace sets itself; `where` names the caller in messages."""
        if (
            isinstance(servers, list | tuple)
            and servers
            and all(isinstance(s, str) for s in servers)
        ):
            servers = ",".join(servers)
        if not isinstance(servers, str) or not servers.strip():
            raise InvalidPipeline(
                f'{where}: servers= is "host:port", several separated by commas, or a list of them'
            )
        if "@" in servers or "://" in servers:
            raise InvalidPipeline(
                f"{where}: servers= is host:port without a scheme, a user or a password; those "
                'belong in options={"security.protocol": ..., "sasl.username": ...}'
            )
        if options is not None and not isinstance(options, Mapping):
            raise InvalidPipeline(f"{where}: options= is a dict of librdkafka's options")
        self.servers = servers
        self._options = dict(options or {})
        for name in self._options:
            if not isinstance(name, str):
                raise InvalidPipeline(f"{where}: the names of options= are texts")
            if name in own or name in ("bootstrap.servers", "metadata.broker.list"):
                raise InvalidPipeline(f"{where} sets {name!r} itself: leave it out of options=")

    def __repr__(self) -> str:
        names = ", ".join(sorted(self._options))
        return f"ClientSettings({self.servers}, options: {names or 'none'})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientSettings) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash((self.servers, *sorted(self._options)))

    def client(self, kind: str, **defaults: Any) -> Any:
        """A client: `kind` is Consumer, Producer or AdminClient. `_` in names stands for a dot."""
        given = {n if n in _CALLBACKS else n.replace("_", "."): v for n, v in defaults.items()}
        made = library("confluent_kafka.admin" if kind == "AdminClient" else "confluent_kafka")
        # The engine announces outages itself, once. What a client logs it would print.
        config = {"log_level": 0, **given, **self._options, "bootstrap.servers": self.servers}
        try:
            return getattr(made, kind)(config)
        except (made.KafkaException, ValueError, TypeError) as error:
            raise InvalidPipeline(
                f"a client of Kafka cannot be made with these options: {self.said(error)}"
            ) from None

    def get(self, name: str, default: Any) -> Any:
        """The value of an option that is no secret."""
        return self._options.get(name, default)

    def number(self, name: str, default: int) -> int:
        """`get`, of an option that is a whole number."""
        given = self.get(name, default)
        try:
            return int(given)
        except (TypeError, ValueError):
            raise InvalidPipeline(f"options=: {name} is a whole number") from None

    def said(self, error: object) -> str:
        """What a client or a broker says, without the values of options."""
        text = str(error)
        found = getattr(error, "args", None)
        if found and hasattr(found[0], "str"):
            text = f"{found[0].name()}: {found[0].str()}"
        elif hasattr(error, "str") and hasattr(error, "name"):
            text = f"{error.name()}: {error.str()}"
        for name, value in self._options.items():
            if name not in _PLAIN and isinstance(value, str) and len(value) > 2:
                text = text.replace(value, _HIDDEN)
        return text

    def _all(self) -> tuple[str, dict[str, Any]]:
        return self.servers, self._options


def is_away(error: Any) -> bool:
    """Whether a KafkaError may end by itself."""
    return bool(error.retriable()) or error.name() in AWAY


class Topic(NamedTuple):
    """A topic as brokers know it."""

    id: str
    partitions: int


Place = tuple[str, int]
"""A topic and the number of a partition."""


class Brokers:
    """Questions to the brokers, asked by the driver or by a task."""

    def __init__(
        self, settings: ClientSettings, unavailable: type[StoreError], refused: type[HeadraceError]
    ) -> None:
        self._settings = settings
        self._unavailable = unavailable
        self._refused = refused
        self._admin = shared(
            settings,
            "AdminClient",
            lambda: settings.client("AdminClient", error_cb=partial(_hear, settings)),
        )

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """The topics of these names that exist."""
        return self.asked(names)()

    def asked(self, names: Iterable[str]) -> Callable[[], dict[str, Topic]]:
        """`topics`, sent now and answered later."""
        wanted = list(names)
        if not wanted:
            return dict
        collection = library().TopicCollection(wanted)
        futures = self._call(self._admin.describe_topics, collection, request_timeout=ANSWER_S)

        def answer() -> dict[str, Topic]:
            found = {}
            for name, future in futures.items():
                try:
                    described = future.result()
                except library().KafkaException as error:
                    if error.args[0].name() == "UNKNOWN_TOPIC_OR_PART":
                        continue
                    raise self.error(error, f"asking for the topic {name}") from None
                found[name] = Topic(str(described.topic_id), len(described.partitions))
            return found

        return answer

    def settings_of(self, topic: str) -> dict[str, str]:
        """The settings of a topic; none if they may not be read."""
        made = library("confluent_kafka.admin")
        asked = made.ConfigResource(made.ConfigResource.Type.TOPIC, topic)
        futures = self._call(self._admin.describe_configs, [asked], request_timeout=ANSWER_S)
        try:
            return {name: one.value for name, one in futures[asked].result().items()}
        except library().KafkaException as error:
            found = self.error(error, f"asking for the settings of the topic {topic}")
            if isinstance(found, self._unavailable):
                raise found from None
            return {}

    def cluster_of(self, topic: str) -> str:
        """The id of the cluster, which is the same by whatever address it is reached."""
        return str(self._call(self._admin.list_topics, topic, timeout=ANSWER_S).cluster_id)

    def names(self) -> list[str]:
        """The names of all topics that are not Kafka's own."""
        listed = self._call(self._admin.list_topics, timeout=ANSWER_S)
        return sorted(name for name in listed.topics if not name.startswith("__"))

    def first_offsets(self, places: Iterable[Place]) -> dict[Place, int]:
        """Where partitions begin: retention may have deleted what lay before."""
        return self._offsets({place: "earliest" for place in places})

    def end_offsets(self, places: Iterable[Place]) -> dict[Place, int]:
        """Where partitions end for a reader of committed records."""
        return self._offsets({place: "latest" for place in places})

    def offsets_at(self, places: Iterable[Place], at_us: int) -> dict[Place, int | None]:
        """The first record at or after a time; None if there is none."""
        found = self._offsets({place: -(-at_us // 1000) for place in places})
        return {place: offset if offset >= 0 else None for place, offset in found.items()}

    def _offsets(self, wanted: Mapping[Place, str | int]) -> dict[Place, int]:
        if not wanted:
            return {}
        kafka, admin = library(), library("confluent_kafka.admin")
        spec = {
            kafka.TopicPartition(*place): getattr(admin.OffsetSpec, how)()
            if isinstance(how, str)
            else admin.OffsetSpec.for_timestamp(how)
            for place, how in wanted.items()
        }
        futures = self._call(
            self._admin.list_offsets,
            spec,
            isolation_level=kafka.IsolationLevel.READ_COMMITTED,
            request_timeout=ANSWER_S,
        )
        found = {}
        for place, future in futures.items():
            try:
                found[place.topic, place.partition] = int(future.result().offset)
            except kafka.KafkaException as error:
                what = f"asking for the offsets of {place.topic}/{place.partition}"
                # It was listed, so it was just made or deleted: the next list says which.
                raise self.error(error, what, passing="UNKNOWN_TOPIC_OR_PART") from None
        return found

    def _call(self, ask: Callable[..., Any], *args: Any, **more: Any) -> Any:
        try:
            return ask(*args, **more)
        except library().KafkaException as error:
            raise self.error(error, "asking the brokers") from None

    def error(self, error: Any, doing: str, passing: str = "") -> HeadraceError:
        """An error of a client as one of Headrace: an outage, or a refusal.

        `passing`: the name of one that ends by itself here."""
        found = error.args[0] if getattr(error, "args", None) else error
        said = f"Kafka at {self._settings.servers}: {doing}: {self._settings.said(error)}"
        away = not hasattr(found, "retriable") or is_away(found) or found.name() == passing
        self._admin.poll(0)
        at, why = _heard.get(self._settings, (float("-inf"), ""))
        if away and time.monotonic() - at < _HEARD_S:
            said += f". The client says: {why}"
        return self._unavailable(said) if away else self._refused(said)


_heard: dict[ClientSettings, tuple[float, str]] = {}


def _hear(settings: ClientSettings, error: Any) -> None:
    """Keeps why a client cannot connect: what it is asked only times out."""
    if error.name() != "_ALL_BROKERS_DOWN":  # which is said beside the reason
        # Without the times and counts after it: an outage is announced once.
        _heard[settings] = time.monotonic(), settings.said(error).partition(" (after ")[0]


_clients: dict[tuple[int, str, ClientSettings], Any] = {}
_lock = threading.Lock()


def shared(settings: ClientSettings, kind: str, make: Callable[[], Any]) -> Any:
    """A client that may be used by several threads, made once per process."""
    # A forked process has none of the threads of its parent's clients.
    place = (os.getpid(), kind, settings)
    with _lock:
        if place not in _clients:
            _clients[place] = make()
        return _clients[place]
