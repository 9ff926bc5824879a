"""File sources over a store: URLs and patterns, watched prefixes, objects that are replaced."""

from __future__ import annotations

import gzip
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.support import driver_of, run

from headrace import read_output, sinks, sources
from headrace.errors import InvalidPipeline, SourceError, StoreError
from headrace.model.source import Change, Source, Workspace
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.transient import is_outage
from headrace.sinks import memory as memory_sink
from headrace.sources.files.stored_set import StoredFileSet
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore
from headrace.store.store import ForwardingStore, ObjectInfo, Store


@pytest.fixture(autouse=True)
def listed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoredFileSet, "look_every_s", 0.0)


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else DiskStore(tmp_path / "store")


def put(store: Store, **files: str) -> None:
    """Writes files; `_` in a keyword is a directory's end, and `.txt` is added."""
    for key, text in files.items():
        name = key.replace("__", "/") + ".txt"
        store.make_directory(name.rpartition("/")[0])
        store.write(name, text.encode())


def prepared(source: Source) -> Source:
    source.prepare(Workspace(MemoryStore()))
    return source


def values_of(source: Source) -> list[Any]:
    found: list[Any] = []
    for split in source.splits():
        planned = source.plan(split, 0, 10_000)
        assert planned is not None
        found += source.read(split, planned).values or []
    return found


PATTERNS = {
    "in/*.txt": ["in/a", "in/b"],
    "in/**": ["in/a", "in/b", "in/deep/c", "in/deep/er/d"],
    "in/**/*.txt": ["in/a", "in/b", "in/deep/c", "in/deep/er/d"],
    "in/*/*.txt": ["in/deep/c"],
    "in/": ["in/a", "in/b", "in/deep/c", "in/deep/er/d"],
    "in": ["in/a", "in/b", "in/deep/c", "in/deep/er/d"],
    "in/[ac].txt": ["in/a"],
    "in/deep/**/d.txt": ["in/deep/er/d"],
    "*/a.txt": ["in/a", "in2/a"],
    "in/a.txt": ["in/a"],
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_over_a_store_matches_what_it_matches_on_a_disk(
    pattern: str, tmp_path: Path
) -> None:
    memory, disk = MemoryStore(), DiskStore(tmp_path)
    names = ("in__a", "in__b", "in__deep__c", "in__deep__er__d", "in2__a")
    for each in (memory, disk):
        put(each, **{name: name.replace("__", "/") for name in (*names, "in___skip", "in__.dot")})
    found = prepared(sources.text(f"{memory.location}/{pattern}"))
    assert sorted(values_of(found)) == PATTERNS[pattern]
    on_disk = prepared(sources.text(f"{tmp_path}/{pattern}"))
    assert values_of(on_disk) == values_of(found)
    if pattern != "in":
        assert on_disk.splits() == found.splits(), "a file has the same name in both"


def test_lists_of_urls_are_one_set_and_names_do_not_depend_on_what_exists() -> None:
    store = MemoryStore()
    put(store, in__a="1", in__b="2", other__c="3")
    urls = [f"{store.location}/in/a.txt", f"{store.location}/other/*.txt"]
    source = prepared(sources.text(urls))
    assert list(source.splits()) == ["in/a.txt", "other/c.txt"]
    with pytest.raises(SourceError, match="there is nothing at .*/in/none.txt: correct the URL"):
        prepared(sources.text([*urls, f"{store.location}/in/none.txt"]))
    with pytest.raises(SourceError, match="nothing in the store matches"):
        prepared(sources.text(f"{store.location}/in/*.none"))


def test_a_list_may_not_mix_buckets_or_paths() -> None:
    with pytest.raises(InvalidPipeline, match="one bucket.*s3://a and s3://b are two"):
        sources.text(["s3://a/x", "s3://b/x"])
    with pytest.raises(InvalidPipeline, match="one set of options"):
        sources.text(["s3://a/x?region=1", "s3://a/x?region=2"])
    with pytest.raises(InvalidPipeline, match="not both in one list"):
        sources.text(["s3://a/x", "/b/x"])
    with pytest.raises(InvalidPipeline, match="give it as a text"):
        sources.text(Path("s3://a/x"))


def test_options_of_a_url_are_not_part_of_what_a_source_is_called() -> None:
    source = sources.text("s3://bucket/in/*.txt?endpoint=https://127.0.0.1:9000")
    assert source.describe() == "text(s3://bucket/in/*.txt)"


def test_what_no_store_can_have_is_refused_when_the_pipeline_is_written() -> None:
    for url, message in (
        ("s3://key:secret@bucket/in", "contains a credential"),
        ("s3://bucket/in?secret_key=x", "contains a credential"),
        ("s3a://bucket/in", "write s3://"),
        ("ftp://bucket/in", "is not a kind of store"),
        ("s3:///in", "names no bucket"),
    ):
        for make in (sources.text, sinks.jsonl, read_output):
            with pytest.raises(InvalidPipeline, match=message):
                make(url)


def test_a_whole_store_can_be_given(store: Store) -> None:
    put(store, in__a="1\n2\n", b="3\n")
    source = prepared(sources.text(store))
    assert sorted(values_of(source)) == ["1", "2", "3"]
    below = prepared(sources.text(store.below("in")))
    assert list(below.splits()) == ["a.txt"] and values_of(below) == ["1", "2"]


def test_a_task_opens_the_store_by_itself(store: Store) -> None:
    put(store, in__a="1\n2\n")
    source = prepared(sources.text(store.below("in")))
    planned = source.plan("a.txt", 0, 10)
    assert planned is not None
    copy = pickle.loads(pickle.dumps(source))
    assert copy.read("a.txt", planned).values == ["1", "2"]


def test_a_compressed_object_is_unpacked(store: Store) -> None:
    store.make_directory("")
    store.write("a.jsonl.gz", gzip.compress(b"".join(b'{"n": %d}\n' % n for n in range(5000))))
    source = prepared(sources.jsonl(store))
    assert [value["n"] for value in values_of(source)] == list(range(5000))


# Changes ------------------------------------------------------------------


def test_an_object_that_was_replaced_after_the_plan_is_refused(store: Store) -> None:
    put(store, a="1\n2\n")
    source = prepared(sources.text(store))
    planned = source.plan("a.txt", 0, 10)
    assert planned is not None
    put(store, a="1\n3\n")
    with pytest.raises(SourceError, match="a.txt has changed.*--accept-changed"):
        source.read("a.txt", planned)
    store.delete("a.txt")
    with pytest.raises(SourceError, match="a.txt is missing"):
        source.read("a.txt", planned)


def test_an_object_that_is_replaced_while_it_is_read_is_refused() -> None:
    class Replaced(ForwardingStore):
        def read_range(self, name: str, start: int, end: int) -> bytes:
            data = super().read_range(name, start, end)
            if armed:
                self.base.write(name, b"9\n9\n")
            return data

    memory, armed = MemoryStore(), False
    memory.write("a.txt", b"1\n2\n")
    source = prepared(sources.text(Replaced(memory)))
    planned = source.plan("a.txt", 0, 10)
    assert planned is not None
    armed = True
    with pytest.raises(SourceError, match="has changed"):
        source.read("a.txt", planned)


def test_what_was_read_is_compared_by_version_and_then_by_bytes(store: Store) -> None:
    put(store, a="1\n2\n", b="1\n2\n", c="1\n2\n")
    source = prepared(sources.text(store))
    seen = {}
    for split in source.splits():
        planned = source.plan(split, 0, 10)
        assert planned is not None
        [seen[split]] = source.read(split, planned).seen.values()
    put(store, a="1\n2\n", b="1\n3\n", c="1\n2\n3\n")
    source = prepared(sources.text(store))
    same, other, longer = (
        source.compare(split, "", seen[split], closely=True) for split in source.splits()
    )
    assert not isinstance(same, Change) and same is not None and same.digest == seen["a.txt"].digest
    assert isinstance(other, Change) and other.how == "was rewritten"
    assert isinstance(longer, Change) and longer.how == "has grown from 4 to 6 bytes"
    assert longer.name == f"{store.where()}/c.txt"
    store.delete("b.txt")
    source = prepared(sources.text(store))
    assert source.compare("b.txt", "", seen["b.txt"], closely=True) is None
    assert source.accept("c.txt", "", seen["c.txt"])[0] == 6


# Watching -----------------------------------------------------------------


def pipeline_of(source: Source) -> tuple[Topology, Any]:
    pipeline, sink = PipelineBuilder("stored"), memory_sink()
    pipeline.read("in", source).write(sink)
    return pipeline.freeze(), sink


@pytest.mark.parametrize("ordered", [False, True])
def test_a_watched_prefix_is_read_as_it_grows(store: Store, ordered: bool) -> None:
    store.make_directory("")
    topology, sink = pipeline_of(sources.text(store, watch=True, ordered_by_name=ordered))
    driver = driver_of(topology)
    assert run(driver) == 0 and sink.rows == []
    put(store, in__b="2\n3\n")
    run(driver)
    put(store, in__a="1\n", in__c="4")
    store.write("in/empty.txt", b"")
    run(driver)
    assert sink.rows == ["2", "3", "1", "4"]


def test_a_replaced_object_of_a_watched_prefix_stops_the_run(store: Store) -> None:
    put(store, in__a="1\n", in__b="2\n")
    topology, sink = pipeline_of(sources.text(store, watch=True))
    checkpoint = MemoryStore()
    driver = driver_of(topology, checkpoint)
    run(driver)
    put(store, in__a="9\n")
    with pytest.raises(SourceError, match="in/a.txt was rewritten"):
        run(driver)
    with pytest.raises(SourceError, match="in/a.txt was rewritten"):
        driver_of(topology, checkpoint)
    name = f"{store.where()}/in/a.txt"
    accepted = driver_of(topology, checkpoint, accept_changed=(name,))
    put(store, in__c="3\n")
    run(accepted)
    assert sink.rows == ["1", "2", "3"]


def test_a_store_that_cannot_be_reached_is_an_outage_and_never_empty() -> None:
    class Away(ForwardingStore):
        def walk(self, directory: str = "", *, after: str = "") -> Iterator[ObjectInfo | None]:
            if away:
                raise StoreError("the store cannot be reached")
            return super().walk(directory, after=after)

    memory, away = MemoryStore(), False
    memory.write("a.txt", b"1\n")
    topology, sink = pipeline_of(sources.text(Away(memory), watch=True))
    driver = driver_of(topology)
    run(driver)
    away = True
    with pytest.raises(StoreError) as caught:
        run(driver)
    assert is_outage(caught.value)
    away = False
    memory.write("b.txt", b"2\n")
    run(driver)
    assert sink.rows == ["1", "2"]


def test_planning_a_small_object_costs_one_request_and_reading_it_three() -> None:
    class Counted(ForwardingStore):
        def stat(self, name: str) -> ObjectInfo:
            asked.append("stat")
            return super().stat(name)

        def read_range(self, name: str, start: int, end: int) -> bytes:
            asked.append("range")
            return super().read_range(name, start, end)

    asked: list[str] = []
    memory = MemoryStore()
    memory.write("a.jsonl", b"".join(json.dumps({"n": n}).encode() + b"\n" for n in range(100)))
    source = prepared(sources.jsonl(Counted(memory)))
    [split] = source.splits()
    planned = source.plan(split, 0, 1000)
    assert planned is not None and asked == ["range"]
    asked.clear()
    assert len(source.read(split, planned).values or []) == 100
    assert asked == ["stat", "range", "stat"]
