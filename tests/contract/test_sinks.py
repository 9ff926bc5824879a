"""What every sink promises, checked in one suite for all of them.

A place is where a sink's rows come to rest. It outlives the sink's object, as a
directory outlives a driver: after a crash a new object is opened on it.
"""

import csv
import errno
import json
import os
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from tests.servers import kafka
from tests.servers.postgres import postgres
from tests.unit.systems import with_files

from headrace import failpoints, sinks
from headrace.errors import IncompatibleState, SinkError, StoreError
from headrace.model.values.rows import Rows
from headrace.sinks import Delivery, Opening, Part, Sink
from headrace.sinks.files import FileSink
from headrace.sinks.grouped.groups import EpochGroups, held_files
from headrace.sinks.stored.decoding import Content, as_table
from headrace.sinks.stored.manifests import Manifests
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore
from headrace.store.store import Store
from headrace.system import REAL, System

CHECKPOINT = "checkpoint-1"
FAILPOINTS = ("before-claim", "after-claim", "after-publish", "after-high-water")


class Crash(BaseException):
    """The driver is gone."""


class Place:
    """Where rows come to rest."""

    keeps_files = False
    repeats_after_a_crash = False
    failpoints: tuple[str, ...] = FAILPOINTS

    def __init__(self, root: Path) -> None:
        self.root = root

    def make(self) -> Sink:
        raise KeyError

    def shown(self) -> list[int]:
        """The numbers in the rows that can be seen."""
        raise KeyError

    def open(
        self,
        checkpoint: str = CHECKPOINT,
        commits: Mapping[int, str] | None = None,
        place: str = "/checkpoint",
        system: System = REAL,
    ) -> Sink:
        """A driver takes over; `commits` are those that its log has."""
        sink = self.make()
        directory = str(self.root / "checkpoint" / "sinks" / "out")
        sink.open(Opening(checkpoint, 1, 0, DiskStore(directory, system), commits or {}, place))
        return sink


class FilePlace(Place):
    keeps_files = True

    @property
    def out(self) -> Path:
        return self.root / "out"

    def shown(self) -> list[int]:
        found = (path for path in sorted(self.out.rglob("*")) if path.is_file())
        relative = [path.relative_to(self.out) for path in found]
        seen = [path for path in relative if not any(p[0] in "_." for p in path.parts)]
        return [n for path in seen for n in self.read(self.out / path)]

    def read(self, path: Path) -> list[int]:
        raise KeyError


class JsonlPlace(FilePlace):
    def make(self) -> Sink:
        return sinks.jsonl(self.out)

    def read(self, path: Path) -> list[int]:
        return [json.loads(line)["n"] for line in path.read_text().splitlines()]


class CsvPlace(FilePlace):
    def make(self) -> Sink:
        return sinks.csv(self.out)

    def read(self, path: Path) -> list[int]:
        with path.open(newline="") as file:
            return [int(row["n"]) for row in csv.DictReader(file)]


class ParquetPlace(FilePlace):
    def make(self) -> Sink:
        return sinks.parquet(self.out)

    def read(self, path: Path) -> list[int]:
        return pq.ParquetFile(path).read()["n"].to_pylist()


class PartitionedParquetPlace(ParquetPlace):
    def make(self) -> Sink:
        return sinks.parquet(self.out, partition_by="day")


class ForeachPlace(Place):
    repeats_after_a_crash = True
    failpoints = ("before-claim", "after-publish", "after-high-water")

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.numbers: list[int] = []

    def make(self) -> Sink:
        def take(table: pa.Table, epoch: int) -> None:
            self.numbers += table["n"].to_pylist()

        return sinks.foreach(take)

    def shown(self) -> list[int]:
        return list(self.numbers)


class MemoryPlace(Place):
    failpoints = ("before-claim", "after-high-water")  # Rows and mark appear in one step.

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.sink = sinks.memory()

    def make(self) -> Sink:
        return self.sink

    def shown(self) -> list[int]:
        return [row["n"] for row in self.sink.rows]


class ConsolePlace(Place):
    repeats_after_a_crash = True
    failpoints = ("before-claim", "after-publish", "after-high-water")
    capsys: pytest.CaptureFixture[str]
    printed = ""

    def make(self) -> Sink:
        return sinks.console()

    def shown(self) -> list[int]:
        self.printed += self.capsys.readouterr().out
        return [json.loads(line)["n"] for line in self.printed.splitlines()]


class StoredPlace(Place):
    """A prefix of a store: epochs are manifests."""

    failpoints = ("before-claim", "after-publish")

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.memory = MemoryStore()

    def store(self) -> Store:
        return self.memory.below("out")

    def make(self) -> Sink:
        return sinks.jsonl(self.store())

    def shown(self) -> list[int]:
        found: list[int] = []
        store = self.store()
        for name in Manifests(store).names():
            manifest = Manifests(store).read(name)
            for file in (file for epoch in manifest.epochs for file in epoch.files):
                is_small = file.offset is not None
                data = manifest.bytes_of(file) if is_small else store.read(f"data/{file.name}")
                assert len(data) == file.size
                found += as_table([Content(file.name, data)])["n"].to_pylist()
        return found


class StoredDiskPlace(StoredPlace):
    def store(self) -> Store:
        return DiskStore(self.root / "out")

    def make(self) -> Sink:
        return sinks.csv(self.store())


class StoredPartitionsPlace(StoredPlace):
    def make(self) -> Sink:
        return sinks.parquet(self.store(), partition_by="day")


class PostgresPlace(Place):
    """A table of a real server: rows and mark appear in one transaction."""

    failpoints = ("before-claim", "after-publish")
    mode: dict[str, Any] = {}

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.server = postgres()
        self.schema = f"s{random.randrange(2**48):012x}"
        self.asked(f"CREATE SCHEMA {self.schema}")

    def asked(self, statement: str) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def make(self) -> Sink:
        return sinks.postgres(self.server.dsn(), f"{self.schema}.numbers", **self.mode)

    def shown(self) -> list[int]:
        if self.asked(f"SELECT to_regclass('{self.schema}.numbers')") == [(None,)]:
            return []
        return [n for (n,) in self.asked(f"SELECT n FROM {self.schema}.numbers")]


class PostgresUpsertPlace(PostgresPlace):
    mode = {"mode": "upsert", "key": "n"}


class DeltaPlace(Place):
    """A Delta table: an epoch is a commit; one without rows is a mark in the checkpoint."""

    failpoints = ("before-claim", "after-publish")
    partition_by = ""

    def make(self) -> Sink:
        pytest.importorskip("deltalake")
        return sinks.delta(self.root / "table", partition_by=self.partition_by or ())

    def shown(self) -> list[int]:
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(self.root / "table")):
            return []
        return DeltaTable(str(self.root / "table")).to_pyarrow_table()["n"].to_pylist()


class PartitionedDeltaPlace(DeltaPlace):
    partition_by = "day"


class IcebergPlace(Place):
    """An Iceberg table: an epoch is a snapshot; one without rows is a mark in the checkpoint."""

    failpoints = ("before-claim", "after-publish")
    partition_by = ""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.library = pytest.importorskip("pyiceberg.catalog")
        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{root}/catalog.db",
            "warehouse": f"file://{root}/warehouse",
        }

    def make(self) -> Sink:
        return sinks.iceberg(
            "shop.numbers", properties=self.properties, partition_by=self.partition_by or ()
        )

    def shown(self) -> list[int]:
        catalog = self.library.load_catalog("default", **self.properties)
        if not catalog.table_exists("shop.numbers"):
            return []
        return catalog.load_table("shop.numbers").scan().to_arrow()["n"].to_pylist()


class PartitionedIcebergPlace(IcebergPlace):
    partition_by = "day"


class GroupedPlace(FilePlace):
    """A directory whose epochs appear in groups; what is held is seen by `read_output` only."""

    keeps_files = False

    def make(self) -> Sink:
        return sinks.jsonl(self.out, group_mb=0.0001)

    def shown(self) -> list[int]:
        groups = EpochGroups(self.out, REAL)
        found, mark = super().shown(), groups.mark()
        for epoch in groups.held():
            if epoch > mark:
                for _, _, data in held_files(self.out, epoch, REAL):
                    found += [json.loads(line)["n"] for line in data.splitlines()]
        return found

    def read(self, path: Path) -> list[int]:
        return [json.loads(line)["n"] for line in path.read_text().splitlines()]


class KafkaPlace(Place):
    """A topic: epochs are transactions."""

    parallel = 1

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.server = kafka.broker()
        self.topic = kafka.new_topic(self.server, 2)

    def make(self) -> Sink:
        return sinks.kafka(self.topic, servers=self.server.servers, key="n", parallel=self.parallel)

    def shown(self) -> list[int]:
        return [row["n"] for row in kafka.shown(self.server, self.topic, 2)]


class ParallelKafkaPlace(KafkaPlace):
    parallel = 2


TOPICS = [KafkaPlace, ParallelKafkaPlace]
STORED = [StoredPlace, StoredDiskPlace, StoredPartitionsPlace]
FILES = [JsonlPlace, CsvPlace, ParquetPlace, PartitionedParquetPlace]
TABLES = [
    PostgresPlace, PostgresUpsertPlace, DeltaPlace, PartitionedDeltaPlace, IcebergPlace,
    PartitionedIcebergPlace,
]  # fmt: skip
ALL = [*FILES, GroupedPlace, *STORED, *TABLES, *TOPICS, ForeachPlace, MemoryPlace, ConsolePlace]
EXACTLY_ONCE = [kind for kind in ALL if not kind.repeats_after_a_crash]


def of(kinds: list[type[Place]]) -> pytest.MarkDecorator:
    names = [kind.__name__.removesuffix("Place").lower() for kind in kinds]
    return pytest.mark.parametrize("place", kinds, ids=names, indirect=True)


def at_each_failpoint(kinds: list[type[Place]]) -> pytest.MarkDecorator:
    cases = [
        pytest.param(
            kind, failpoint, id=f"{kind.__name__.removesuffix('Place').lower()}-{failpoint}"
        )
        for kind in kinds
        for failpoint in kind.failpoints
    ]
    return pytest.mark.parametrize(("place", "failpoint"), cases, indirect=["place"])


@pytest.fixture
def place(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Any]:
    made = request.param(tmp_path)
    made.capsys = capsys
    yield made
    failpoints.disarm()


def rows(*numbers: int) -> Rows:
    return Rows.of([{"n": n, "day": f"d{n % 2}"} for n in numbers], [1_000 * n for n in numbers])


def delivery(place: Place, epoch: int, *numbers: int, weak: bool = False) -> Delivery:
    """An epoch staged by two producers, whose copies of the sink came through a pickle."""
    encoder = cloudpickle.loads(cloudpickle.dumps(place.make()))
    parts = []
    for label, mine in (("Count/0", numbers[::2]), ("Count/1", numbers[1::2])):
        data = encoder.encode(rows(*mine))
        read: Callable[[], bytes] = lambda data=data: data  # noqa: E731
        parts.append(Part(label, "digest", read))
    return Delivery(epoch, CHECKPOINT, parts, weak=weak)


def crash() -> None:
    raise Crash


@of(ALL)
def test_an_epoch_delivered_shows_its_rows_and_raises_the_high_water(place) -> None:
    sink = place.open()
    assert sink.high_water() == 0
    sink.deliver(delivery(place, 1, 1, 2, 3))
    sink.deliver(delivery(place, 2, 4))
    assert sorted(place.shown()) == [1, 2, 3, 4]
    assert sink.high_water() == place.open().high_water() == 2


@of(ALL)
def test_an_epoch_delivered_twice_changes_nothing(place) -> None:
    sink = place.open()
    sink.deliver(delivery(place, 1, 1, 2))
    sink.deliver(delivery(place, 2, 3))
    for again in (sink, place.open()):
        again.deliver(delivery(place, 1, 1, 2))
        again.deliver(delivery(place, 2, 3))
    assert sorted(place.shown()) == [1, 2, 3]


@at_each_failpoint(ALL)
def test_a_crash_at_any_point_of_a_delivery_loses_and_repeats_nothing(place, failpoint) -> None:
    place.open().deliver(delivery(place, 1, 1))
    failpoints.arm(failpoint, crash)
    with pytest.raises(Crash):
        place.open().deliver(delivery(place, 2, 2, 3, 4))
    failpoints.disarm()
    successor = place.open()
    successor.deliver(delivery(place, 2, 2, 3, 4))
    successor.deliver(delivery(place, 3, 5))
    expected = [1, 2, 3, 4, 5]
    if place.repeats_after_a_crash and failpoint == "after-publish":
        expected = [1, 2, 2, 3, 3, 4, 4, 5]
    assert sorted(place.shown()) == expected
    assert successor.high_water() == 3


@of(ALL)
def test_an_epoch_without_rows_raises_the_high_water_and_shows_nothing(place) -> None:
    sink = place.open()
    sink.deliver(Delivery(1, CHECKPOINT, []))
    sink.deliver(delivery(place, 2))
    assert place.shown() == []
    assert sink.high_water() == place.open().high_water() == 2
    if place.keeps_files:
        assert [p.name for p in place.out.iterdir() if p.name[0] != "_"] == []


@of(ALL)
def test_rows_are_encoded_to_the_same_bytes_by_every_copy(place) -> None:
    first = place.make().encode(rows(1, 2, 3))
    copy = cloudpickle.loads(cloudpickle.dumps(place.make()))
    assert first
    assert copy.encode(rows(0, 1, 2, 3, 4).slice(1, 3)) == first
    assert copy.encode(rows()) == b""


@of(ALL)
def test_weak_deliveries_show_every_time_and_mark_nothing(place) -> None:
    sink = place.open()
    for _ in range(2):
        sink.deliver(delivery(place, 1, 1, 2, weak=True))
    sink.deliver(delivery(place, 2, 3, weak=True))
    replaced = isinstance(place, PostgresUpsertPlace)
    assert sorted(place.shown()) == ([1, 2, 3] if replaced else [1, 1, 2, 2, 3])
    assert sink.high_water() == 0


@of([*FILES, *STORED, *TABLES, MemoryPlace])
def test_a_foreign_checkpoint_is_refused_with_a_way_out(place) -> None:
    place.open().deliver(delivery(place, 1, 1))
    with pytest.raises(
        SinkError, match=r"fresh output directory|fresh prefix|fresh table|clear\(\)"
    ):
        place.open("checkpoint-2")
    foreign = Delivery(2, "checkpoint-2", delivery(place, 2, 2).parts)
    with pytest.raises(SinkError, match="checkpoint-1"):
        place.open().deliver(foreign)
    assert place.shown() == [1]


@of([ForeachPlace, ConsolePlace])
def test_marks_kept_in_the_checkpoint_count_only_for_its_own_id(place) -> None:
    place.open().deliver(delivery(place, 1, 1))
    assert place.open("restored-under-another-id").high_water() == 0


@at_each_failpoint(FILES)
def test_a_consumer_may_move_files_away_whenever_it_sees_them(place, failpoint) -> None:
    failpoints.arm(failpoint, crash)
    with pytest.raises(Crash):
        place.open().deliver(delivery(place, 1, 1, 2))
    failpoints.disarm()
    taken = take_away(place)
    place.open().deliver(delivery(place, 1, 1, 2))
    assert sorted(taken + take_away(place)) == [1, 2]


@at_each_failpoint(EXACTLY_ONCE)
def test_a_driver_that_pauses_while_another_finishes_repeats_nothing(place, failpoint) -> None:
    paused, resume = threading.Event(), threading.Event()

    def pause_first() -> None:
        if not paused.is_set():
            paused.set()
            resume.wait(10)

    failpoints.arm(failpoint, pause_first)
    slow = threading.Thread(target=place.open().deliver, args=[delivery(place, 1, 1, 2)])
    slow.start()
    assert paused.wait(10)
    successor = place.open()
    successor.deliver(delivery(place, 1, 1, 2))
    successor.deliver(delivery(place, 2, 3))
    taken = take_away(place) if place.keeps_files else []
    resume.set()
    slow.join(10)
    assert sorted(taken + place.shown()) == [1, 2, 3]
    assert place.open().high_water() == 2


@of(EXACTLY_ONCE)
def test_drivers_that_race_publish_each_epoch_once(place) -> None:
    seed = random.randrange(2**32)
    dice = random.Random(seed)
    for failpoint in FAILPOINTS:
        failpoints.arm(failpoint, lambda: time.sleep(dice.random() / 300))
    epochs = [delivery(place, epoch, 2 * epoch, 2 * epoch + 1) for epoch in range(1, 6)]
    taken: list[int] = []
    errors: list[BaseException] = []
    running = threading.Event()

    def drive(sink: Sink) -> None:
        try:
            for epoch in epochs:
                sink.deliver(epoch)
        except BaseException as error:
            errors.append(error)

    def consume() -> None:
        while not running.is_set():
            taken.extend(take_away(place))
            time.sleep(0.002)

    drivers = [threading.Thread(target=drive, args=[place.open()]) for _ in range(4)]
    consumer = threading.Thread(target=consume if place.keeps_files else bool)
    for thread in [*drivers, consumer]:
        thread.start()
    for thread in drivers:
        thread.join(60)
    running.set()
    consumer.join(10)
    assert errors == [], f"seed {seed}"
    seen = Counter(taken + place.shown())
    assert seen == Counter(range(2, 12)), f"seed {seed}"
    assert place.open().high_water() == 5


@of(FILES)
def test_a_full_disk_is_an_error_that_names_the_path_and_loses_nothing(place, monkeypatch) -> None:
    sink = place.open()
    epoch = delivery(place, 1, 1, 2)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match=f"{place.out}.*disk is full"):
            sink.deliver(epoch)
    assert place.shown() == []
    assert list((place.out / "_staging").iterdir()) == []
    sink.deliver(epoch)
    assert sorted(place.shown()) == [1, 2]


@of([ForeachPlace, ConsolePlace])
def test_a_mark_that_cannot_be_written_is_an_error_that_names_its_path(place) -> None:
    def denied(path: str) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    sink = place.open(system=with_files(create=denied))
    with pytest.raises(StoreError, match=f"{place.root}.*permission denied"):
        sink.deliver(delivery(place, 1, 1))
    assert sink.high_water() == 0


@of(FILES)
def test_a_place_without_permission_is_refused_when_opened(place) -> None:
    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with pytest.raises(StoreError, match=f"{place.out}.*permission denied"):
        place.open(system=with_files(mkdir=denied))


@of(FILES)
def test_a_file_where_the_directory_should_be_is_refused(place) -> None:
    place.out.write_text("not a directory")
    with pytest.raises(StoreError, match=f"{place.out}.*Not a directory"):
        place.open()


@of(FILES)
def test_a_finished_delivery_leaves_neither_claims_nor_staging(place) -> None:
    failpoints.arm("before-claim", crash)
    with pytest.raises(Crash):
        place.open().deliver(delivery(place, 1, 1))
    failpoints.disarm()
    sink = place.open()
    sink.deliver(delivery(place, 1, 1))
    sink.tidy()
    assert list((place.out / "_staging").iterdir()) == []
    assert list((place.out / "_claims").iterdir()) == []


# Two copies of one checkpoint: one id, the same numbers of epochs, other commits.


def of_commit(given: Delivery, commit: str, place: str = "/checkpoint") -> Delivery:
    return msgspec.structs.replace(given, commit=commit, place=place)


@of(ALL)
def test_an_epoch_of_another_commit_is_refused_and_shows_nothing(place) -> None:
    first, second = place.open(), place.open(place="/copy")
    first.deliver(of_commit(delivery(place, 1, 1, 2), "a"))
    with pytest.raises(
        IncompatibleState, match=r"has epoch 1 from another copy .*\(id checkpoint-1"
    ):
        second.deliver(of_commit(delivery(place, 1, 1), "b", "/copy"))
    with pytest.raises(IncompatibleState, match="has epoch 1 from another copy"):
        second.verify(1, "b")
    second.verify(1, "a")
    assert sorted(place.shown()) == [1, 2]
    assert place.open().high_water() == 1


@of([*FILES, *STORED, *TABLES, MemoryPlace])
def test_a_refusal_of_a_copy_names_both_places_and_a_way_out(place) -> None:
    place.open().deliver(of_commit(delivery(place, 1, 1), "a", "/first"))
    copy = place.open(place="/second")
    with pytest.raises(
        IncompatibleState, match="at /first; this one, at /second, .* another place"
    ):
        copy.deliver(of_commit(delivery(place, 1), "b", "/second"))


@of(ALL)
def test_the_same_commit_is_completed_by_whichever_driver_comes(place) -> None:
    place.open().deliver(of_commit(delivery(place, 1, 1, 2), "a"))
    successor = place.open(commits={1: "a"})
    successor.deliver(of_commit(delivery(place, 1, 1, 2), "a"))
    successor.deliver(of_commit(delivery(place, 2, 3), "b"))
    assert sorted(place.shown()) == [1, 2, 3]


@of(ALL)
def test_a_copy_that_has_gone_its_own_way_is_refused_when_it_opens(place) -> None:
    place.open().deliver(of_commit(delivery(place, 1, 1), "a"))
    with pytest.raises(IncompatibleState, match="has epoch 1 from another copy"):
        place.open(commits={1: "b"})
    assert place.open(commits={7: "b"}).high_water() == 1, "what nobody knows is not refused"


@at_each_failpoint([*FILES, *STORED, *TABLES])
@pytest.mark.parametrize("rows", [True, False], ids=["with rows", "without"])
def test_of_two_copies_that_race_one_is_refused_and_one_is_shown(place, failpoint, rows) -> None:
    paused, resume, errors = threading.Event(), threading.Event(), []

    def pause_first() -> None:
        if not paused.is_set():
            paused.set()
            resume.wait(10)

    def drive(sink: Sink, given: Delivery) -> None:
        try:
            sink.deliver(given)
        except IncompatibleState as error:
            errors.append(error)

    failpoints.arm(failpoint, pause_first)
    given = of_commit(delivery(place, 1, 1, 2), "a")
    other = of_commit(delivery(place, 1, 3) if rows else delivery(place, 1), "b", "/copy")
    slow = threading.Thread(target=drive, args=[place.open(), given])
    slow.start()
    assert paused.wait(10)
    drive(place.open(place="/copy"), other)
    resume.set()
    slow.join(10)
    assert len(errors) == 1 or (len(errors) == 2 and not rows)
    if len(errors) == 1:
        assert sorted(place.shown()) in ([1, 2], [3] if rows else [])


@of([JsonlPlace])
def test_what_a_copy_has_claimed_is_taken_away_before_it_shows_in_an_epoch_without_rows(
    place, monkeypatch
) -> None:
    """Between its look at the high-water and its rename, the other raises the high-water."""
    rename = FileSink._rename

    def late(self: FileSink, *named: Any) -> None:
        place.open(place="/copy").deliver(of_commit(delivery(place, 1), "b", "/copy"))
        rename(self, *named)

    monkeypatch.setattr(FileSink, "_rename", late)
    with pytest.raises(IncompatibleState):
        place.open().deliver(of_commit(delivery(place, 1, 1, 2), "a"))
    assert place.shown() == []
    place.open(commits={1: "b"}).deliver(of_commit(delivery(place, 2), "c", "/copy"))
    assert list((place.out / "_staging").iterdir()) == []
    assert list((place.out / "_claims").iterdir()) == []


@of([JsonlPlace])
def test_rows_of_a_copy_in_an_epoch_without_rows_stop_both_until_somebody_decides(place) -> None:
    """Between its rename and its high-water, the other raises the high-water."""
    refused: list[str] = []

    def other() -> None:
        failpoints.disarm("after-publish")
        try:
            place.open(place="/copy").deliver(of_commit(delivery(place, 1), "b", "/copy"))
        except IncompatibleState as error:
            refused.append(str(error))

    failpoints.arm("after-publish", other)
    with pytest.raises(IncompatibleState):
        place.open().deliver(of_commit(delivery(place, 1, 1, 2), "a"))
    assert len(refused) == 1 and "holds rows of another copy" in refused[0]
    for commit in ("a", "b"):
        with pytest.raises(IncompatibleState):
            place.open(commits={1: commit})
    take_away(place)  # the way out that the error names
    with pytest.raises(IncompatibleState):
        place.open(commits={1: "a"})
    assert place.open(commits={1: "b"}).high_water() == 1


@of([JsonlPlace])
def test_a_copy_that_claims_late_shows_nothing_and_is_in_nobodys_way(place) -> None:
    def late() -> None:
        failpoints.disarm("before-claim")
        place.open().deliver(of_commit(delivery(place, 1, 1, 2), "a"))

    failpoints.arm("before-claim", late)
    with pytest.raises(IncompatibleState):
        place.open(place="/copy").deliver(of_commit(delivery(place, 1, 3), "b", "/copy"))
    first = place.open(commits={1: "a"})
    first.deliver(of_commit(delivery(place, 2, 4), "c"))
    assert sorted(place.shown()) == [1, 2, 4]


def take_away(place: FilePlace) -> list[int]:
    """What a consumer does: moves each epoch out as soon as it sees it, and reads it."""
    numbers: list[int] = []
    for found in sorted(place.out.glob("epoch=*")):
        target = place.root / f"taken-{time.monotonic_ns()}"
        shutil.move(found, target)
        for path in target.rglob("part-*"):
            numbers += place.read(path)
    return numbers
