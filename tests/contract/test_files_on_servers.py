"""File sources and file sinks on real servers: the same records and the same rows as on a disk."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import random
import time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.servers.proxy import Proxy
from tests.servers.stores import chosen, server_of
from tests.unit.engine.support import Crash, counting, die, driver_of, run

from headrace import failpoints, read_output, sinks, sources
from headrace.errors import HeadraceError, IncompatibleState, SourceError
from headrace.limits import Limits
from headrace.model.sink import Delivery, Opening
from headrace.model.source import Source, Workspace
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.decisions.transient import is_outage
from headrace.sinks.stored.manifests import Manifests
from headrace.sinks.stored.upkeep import merge, sweep
from headrace.sources.files.stored_set import StoredFileSet
from headrace.store.asking import require_exact_puts
from headrace.store.counts import PATH
from headrace.store.location import open_store
from headrace.store.memory import MemoryStore
from headrace.store.objects import ObjectStore
from headrace.system import System

S3 = [kind for kind in chosen() if kind in ("ministack", "versitygw")]
ROWS = [{"n": n, "name": f"naïve {n}" * (n % 5)} for n in range(3000)]
VALUES = [n % 7 for n in range(40)]


@pytest.fixture(params=chosen())
def url(request: pytest.FixtureRequest) -> str:
    return server_of(request.param).new_url()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(StoredFileSet, "look_every_s", 0.0)
    yield
    failpoints.disarm()


def below(url: str, path: str) -> str:
    """The URL of something below another, before its options."""
    place, question, options = url.partition("?")
    return f"{place}/{path}{question}{options}"


def put(url: str, **files: bytes) -> None:
    store = open_store(url)
    for name, data in files.items():
        store.make_directory("in/deep")
        store.write("in/" + name.replace("__", "/").replace("_", "."), data)


def records(source: Source, size: int = 700) -> list[Any]:
    """All records of a source, read by copies of it, in ranges of several records."""
    source.prepare(Workspace(MemoryStore()))
    copy = pickle.loads(pickle.dumps(source))
    found: list[Any] = []
    for split in source.splits():
        position, last = 0, False
        while not last:
            planned = source.plan(split, position, size)
            assert planned is not None
            for part in source.parallel(split, planned, 3):
                reading = copy.read(split, part)
                found += reading.values or (reading.columns.to_pylist() if reading.columns else [])
            position, last = planned.end, planned.last
    return found


def as_lines() -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)


def as_parquet() -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), out, row_group_size=500)
    return out.getvalue()


def test_every_format_is_read_from_a_url(url: str) -> None:
    cells = "n,name\n" + "".join(f'{row["n"]},"{row["name"]}"\n' for row in ROWS)
    put(
        url,
        a_txt=b"\n".join(row["name"].encode() for row in ROWS),
        a_jsonl=as_lines(),
        deep__b_jsonl=b'{"n": 9000}\n',
        c_jsonl_gz=gzip.compress(b'{"n": 9001}\n'),
        a_csv=cells.encode(),
        a_parquet=as_parquet(),
        _hidden_jsonl=b"not json",
        empty_jsonl=b"",
    )
    names = [row["name"] for row in ROWS]
    assert records(sources.text(below(url, "in/*.txt"))) == names
    assert records(sources.jsonl(below(url, "in/*.jsonl"))) == ROWS
    assert records(sources.jsonl(below(url, "in/**/*.jsonl"))) == [*ROWS, {"n": 9000}]
    one = [below(url, "in/deep/b.jsonl"), below(url, "in/c.jsonl.gz")]
    assert records(sources.jsonl(one)) == [{"n": 9001}, {"n": 9000}]
    assert records(sources.csv(below(url, "in/a.csv"), types={"n": int, "name": str})) == [
        {"n": row["n"], "name": row["name"] or None} for row in ROWS
    ]
    assert records(sources.parquet(below(url, "in/*.parquet"))) == ROWS
    few = records(sources.parquet(below(url, "in/a.parquet"), columns=["n"], ordered_by_name=True))
    assert few == [{"n": row["n"]} for row in ROWS]
    with pytest.raises(SourceError, match="nothing in the store matches"):
        records(sources.text(below(url, "in/*.none")))


def test_a_place_that_is_not_there_yet_can_hold_a_checkpoint(url: str) -> None:
    store = open_store(below(url, "new/place"))
    require_exact_puts(store)
    assert store.list("") == []


def watching(url: str) -> tuple[Any, Any]:
    pipeline, sink = PipelineBuilder("watched"), sinks.memory()
    pipeline.read("in", sources.text(below(url, "in/"), watch=True)).write(sink)
    return pipeline.freeze(), sink


def run_until_seen(driver: Any, sink: Any, rows: int) -> None:
    """A slow server may show a new file only in the next listing."""
    until = time.monotonic() + 60
    while len(sink.rows) < rows:
        assert time.monotonic() < until, sink.rows
        run(driver)


def run_until_refused(driver: Any) -> None:
    """A slow server may show a replaced file only in the next listing."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        run(driver)


def test_a_watched_prefix_is_read_as_it_grows_and_a_replaced_object_is_refused(url: str) -> None:
    topology, sink = watching(url)
    checkpoint = MemoryStore()
    driver = driver_of(topology, checkpoint)
    assert run(driver) == 0
    put(url, b_txt=b"2\n3\n")
    run_until_seen(driver, sink, 2)
    put(url, a_txt=b"1\n", deep__c_txt=b"4")
    run_until_seen(driver, sink, 4)
    # A listing that began before both files were there may show either first.
    assert sink.rows[:2] == ["2", "3"] and sorted(sink.rows[2:]) == ["1", "4"]
    put(url, b_txt=b"2\n4\n")
    with pytest.raises(SourceError, match=r"in/b\.txt was rewritten"):
        run_until_refused(driver)
    with pytest.raises(SourceError, match=r"in/b\.txt was rewritten"):
        driver_of(topology, checkpoint)
    put(url, b_txt=b"2\n3\n")
    run(driver_of(topology, checkpoint))
    put(url, d_txt=b"5")
    run(driver_of(topology, checkpoint))
    assert sorted(sink.rows[2:]) == ["1", "4", "5"]


def expected() -> list[tuple[str, int]]:
    memory = sinks.memory()
    run(driver_of(counting(VALUES, memory)))
    return sorted((row["k"], row["n"]) for row in memory.rows)


def pairs(output: Any) -> list[tuple[str, int]]:
    return sorted((row["k"], row["n"]) for row in output.table().to_pylist())


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet", "partitioned"])
def test_a_sink_shows_every_row_once_though_its_driver_is_killed(url: str, kind: str) -> None:
    def made() -> Any:
        place = below(url, "out")
        if kind == "partitioned":
            return sinks.parquet(place, partition_by="k")
        return getattr(sinks, kind)(place)

    checkpoint = MemoryStore()
    for failpoint in ("after-job", "after-commit-write", "before-claim", "after-publish"):
        left = 2

        def die_later() -> None:
            nonlocal left
            left -= 1
            if not left:
                die()

        failpoints.arm(failpoint, die_later)
        with pytest.raises(Crash):
            run(driver_of(counting(VALUES, made()), checkpoint, epoch_records=4))
        failpoints.disarm()
    run(driver_of(counting(VALUES, made()), checkpoint, epoch_records=4))
    output = read_output(below(url, "out"))
    assert pairs(output) == expected()
    again = read_output(below(url, "out"), after=output.cursor)
    assert len(again) == 0 and again.cursor == output.cursor


def test_manifests_are_merged_and_a_cursor_goes_on_through_them(url: str) -> None:
    place = below(url, "out")
    run(driver_of(counting(VALUES, sinks.jsonl(place)), epoch_records=1))
    store = open_store(place)
    whole = read_output(place)
    assert len(whole) > 30
    middle = whole.cursor.rpartition("/")[0] + "/17"
    while merge(store, 4):
        newer = read_output(place, after=middle)
        assert [epoch.number for epoch in newer] == list(range(18, len(whole) + 1))
    assert pairs(read_output(place)) == expected()
    assert len(Manifests(store).names()) < 20
    store.write("data/000000000003-Count%2F0-dropped.jsonl", b'{"k": "x", "n": 1}\n')
    assert sweep(store, 0, len(whole)) == 1
    assert pairs(read_output(place)) == expected()


def test_a_copy_of_the_checkpoint_is_refused(url: str) -> None:
    first, second = (sinks.jsonl(below(url, "out")) for _ in "12")
    for sink, place in ((first, "/a"), (second, "/b")):
        sink.open(Opening("c1", 1, 0, MemoryStore(), {}, place))
    first.deliver(Delivery(1, "c1", [], commit="a", place="/a"))
    with pytest.raises(IncompatibleState, match="has epoch 1 from another copy.*at /a; this one"):
        second.deliver(Delivery(1, "c1", [], commit="b", place="/b"))


@pytest.mark.parametrize("rides", [True, False], ids=["small", "large"])
@pytest.mark.parametrize("kind", S3)
def test_an_epoch_is_one_put_for_each_data_file_and_one_for_its_manifest(
    kind: str, rides: bool
) -> None:
    checkpoint = MemoryStore(System(limits=Limits(ride_bytes_max=32 << 10 if rides else 0)))
    store = open_store(server_of(kind).new_url())
    assert isinstance(store, ObjectStore)
    topology = counting(VALUES, sinks.jsonl(store))
    driver = driver_of(topology, checkpoint, epoch_records=4)
    run(driver, 2)
    before = store.requests()[PATH]
    made = len(store.list("data"))
    after_listing = store.requests()[PATH]
    run(driver, 3)
    now = store.requests()[PATH]
    files = len(store.list("data")) - made
    assert files == 0 if rides else files >= 3
    assert now.puts - before.puts == files + 3
    assert now.gets - before.gets == 0
    assert now.lists - after_listing.lists == 0
    assert now.deletes == before.deletes


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", S3)
def test_a_server_that_fails_and_loses_answers_loses_and_doubles_no_row(
    kind: str, seed: int
) -> None:
    server = server_of(kind)
    proxy = Proxy(server.process.port)
    try:
        dice = random.Random(seed)
        options = f"endpoint=http://127.0.0.1:{proxy.port}&region=us-east-1&allow_http=true"
        place = f"s3://tests/t-{dice.randbytes(6).hex()}-{seed}/out?{options}&timeout=1s"
        fates = ["lost", "cut", "500", "503", "409", "429", "lost 500", "late"]
        proxy.fault = lambda method, path, number: (
            dice.choice(fates) if dice.random() < 0.15 else "pass"
        )
        checkpoint = MemoryStore()
        for _ in range(200):
            try:
                driver = driver_of(counting(VALUES, sinks.jsonl(place)), checkpoint)
                run(driver)
                break
            except HeadraceError as error:
                assert is_outage(error), error
        proxy.fault = lambda method, path, number: "pass"
        assert pairs(read_output(place)) == expected()
    finally:
        proxy.close()
