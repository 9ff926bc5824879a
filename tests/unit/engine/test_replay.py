"""Replay: a past epoch runs again, as it was, and says where it does not make the same."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.support import Local, driver_of, run
from tests.unit.pipelines import at, one
from tests.unit.systems import FILES, Stopwatch

from headrace import (
    Checkpoint,
    Computation,
    IncompatibleState,
    InvalidPipeline,
    Map,
    Pipeline,
    SourceError,
    StoreError,
    failpoints,
    replay,
    service,
    sinks,
    sources,
    state,
    to,
)
from headrace.engine.driver.driver import Driver
from headrace.engine.history.epoch_at import kept_epochs
from headrace.engine.replay.replay import replay_epoch
from headrace.engine.upkeep.collection import collect, needed_by
from headrace.engine.upkeep.pins import Pinned, pinned, pins_of
from headrace.log import paths
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore
from headrace.system import REAL, System
from headrace.testing import CRASH, Harness

SECOND = 1_000_000


class Basket(Computation):
    """A bit of everything: a field, a map, timers, productions, dice and the clock."""

    total: int = state(0)
    items: Map[str, int] = state()

    def process_record(self, record, ctx):
        self.total += record.value["n"]
        self.items[record.value["item"]] = ctx.random.randrange(1000)
        ctx.set_timer("close", at=record.timestamp + SECOND)
        ctx.produce({"total": self.total, "now": ctx.now(), "id": str(ctx.uuid())})

    def process_timer(self, timer, ctx):
        self.items.clear()
        ctx.produce({"closed": self.total})


def bought(t: int, k: str, item: str, n: int = 1) -> dict[str, Any]:
    return at(t, k, item=item, n=n)


def baskets(harness: Harness) -> None:
    harness.send("in", bought(1, "a", "pear", 2), bought(2, "b", "fig"))
    harness.settle()
    harness.send("in", bought(10, "a", "plum", 3))
    harness.settle()
    harness.advance("5s")
    harness.settle()


def test_every_epoch_makes_what_its_commit_says() -> None:
    with Harness(one(Basket)) as h:
        baskets(h)
        for epoch in range(1, h.epoch + 1):
            found = h.replay(epoch)
            assert found.equal, found.differences
            assert found.calls_total == len(found.calls)


def test_a_call_shows_its_cause_what_it_changed_produced_and_set() -> None:
    with Harness(one(Basket)) as h:
        baskets(h)
        first, second = h.replay(1, key="a").calls, h.replay(2).calls
        assert [(c.computation, c.key, c.kind, c.stream) for c in first] == [
            ("C", "a", "record", "in")
        ]
        assert first[0].value == bought(1, "a", "pear", 2)
        assert first[0].before == {"total": 0}
        assert first[0].after["total"] == 2
        assert set(first[0].after) == {"total", "items['pear']"}
        assert [(t.clock, t.tag, t.at) for t in first[0].timers] == [("event", "close", SECOND + 1)]
        assert [p.stream for p in first[0].produced] == ["out"]
        assert first[0].produced[0].value == h.read("out")[0]
        assert second[0].before["total"] == 2
        assert second[0].after["total"] == 5
        timers = [c for e in range(3, h.epoch + 1) for c in h.replay(e).calls]
        assert {(c.kind, c.tag, c.key) for c in timers} == {
            ("timer", "close", "a"),
            ("timer", "close", "b"),
        }
        closed = next(c for c in timers if c.key == "a")
        assert set(closed.before) == {"items['pear']", "items['plum']"}
        assert closed.after == {}
        assert [p.value for p in closed.produced] == [{"closed": 5}]


def test_computation_and_key_choose_what_is_told_and_nothing_else() -> None:
    with Harness(one(Basket)) as h:
        baskets(h)
        assert [c.key for c in h.replay(1, computation="C", key="b").calls] == ["b"]
        assert h.replay(1, key="nobody").calls == []
        assert h.replay(1, key="nobody").equal
        with pytest.raises(InvalidPipeline, match="there are: C"):
            h.replay(1, computation="D")


def test_nothing_is_written_into_the_checkpoint() -> None:
    with Harness(one(Basket)) as h:
        baskets(h)
        before = dict(h._runtime.store.files)
        h.replay(2)
        assert h._runtime.store.files == before


def test_a_bare_random_is_found_and_its_first_hook_named() -> None:
    class Careless(Computation):
        n: int = state(0)

        def process_record(self, record, ctx):
            self.n = record.value["n"]
            if record.value["n"] == 7:
                ctx.produce(random.random())

    with Harness(one(Careless), twice=False) as h:
        h.send("in", at(1, "a", n=1), at(2, "b", n=7), at(3, "c", n=2))
        found = h.replay(1)
        assert not found.equal
        first = found.differences[0]
        assert first.computation == "C"
        assert not first.repeats
        assert first.call is not None
        assert first.call.key == "b"
        assert first.other is not None
        assert first.call.produced != first.other.produced


def test_state_that_came_out_otherwise_is_named_by_key_and_field() -> None:
    grown = {"by": 1}

    class Steady(Computation):
        n: int = state(0)

        def process_record(self, record, ctx):
            self.n += grown["by"]

    with Harness(one(Steady)) as h:
        h.send("in", at(1, "a"), at(2, "b"))
        h.settle()
        grown["by"] = 5
        found = h.replay(1)
        assert not found.equal
        details = [line for d in found.differences for line in d.details]
        assert "key 'a': n is 5 here, 1 in the commit" in details
        assert all(d.repeats for d in found.differences)


def test_only_what_differs_by_itself_comes_before_what_consumed_it() -> None:
    scale = {"by": 1}

    class First(Computation):
        def process_record(self, record, ctx):
            ctx.produce({"k": "z", "t": record.timestamp, "n": scale["by"]})

    class Second(Computation):
        n: int = state(0)

        def process_record(self, record, ctx):
            self.n += record.value["n"]

    p = Pipeline("two")
    p.read("in", sources.memory([], timestamp="t"))
    p.compute(First, inputs={"in": "k"}, outputs="mid")
    p.compute(Second, inputs={"mid": "k"})
    with Harness(p) as h:
        h.send("in", at(1, "a"))
        h.settle()
        scale["by"] = 2
        names = [d.computation for d in h.replay(1).differences]
        assert names[0] == "First"
        assert "Second" in names


def test_a_record_sent_aside_is_told_once_with_its_error() -> None:
    class Fragile(Computation):
        n: int = state(0)

        def process_record(self, record, ctx):
            self.n += 1
            if record.value.get("bad"):
                raise ValueError("no")

    with Harness(one(Fragile, errors=to("dead"))) as h:
        h.send("in", at(1, "a"), at(2, "a", bad=True), at(3, "a"))
        found = h.replay(1)
        assert found.equal
        assert [c.error for c in found.calls] == [None, "ValueError: no", None]
        assert found.calls_total == 3


ANSWERS = itertools.count()


@service(log="with the commit")
def rate(currency: str) -> int:
    return next(ANSWERS)


@service(timeout="300ms")
def charge(customer: str) -> int:
    return next(ANSWERS)


class Paying(Computation):
    paid: int = state(-1)

    def process_record(self, record, ctx):
        self.paid = ctx.call(rate, "EUR") * 1000 + ctx.call(charge, record.value["who"])


def test_answers_come_from_the_log_and_nobody_is_called() -> None:
    with Harness(one(Paying)) as h:
        h.send("in", at(1, "a", who="ann"))
        h.settle()
        asked = next(ANSWERS)
        found = h.replay(1)
        assert next(ANSWERS) == asked + 1
        assert found.equal
        (call,) = found.calls
        assert [a.what for a in call.asked] == ["service 'rate'", "service 'charge'"]
        assert call.after["paid"] == call.asked[0].answer * 1000 + call.asked[1].answer


def test_an_answer_that_is_missing_is_an_error_that_names_the_call() -> None:
    who = {"name": "ann"}

    class Asking(Computation):
        paid: int = state(-1)

        def process_record(self, record, ctx):
            self.paid = ctx.call(charge, who["name"])

    with Harness(one(Asking)) as h:
        h.send("in", at(1, "a"))
        h.settle()
        for name in [n for n in h._runtime.store.files if n.endswith(".result")]:
            h._runtime.store.delete(name)
        asked = next(ANSWERS)
        found = h.replay(1)
        assert next(ANSWERS) == asked + 1
        assert not found.equal
        assert "service 'charge': no answer to it is logged" in found.differences[0].details[0]
        for name in [n for n in h._runtime.store.files if n.startswith("determinants/")]:
            h._runtime.store.delete(name)
        with pytest.raises(StoreError, match="is the checkpoint away"):
            h.replay(1)


def test_an_epoch_that_a_crash_repeated_is_replayed_as_it_was_committed() -> None:
    with Harness(one(Basket)) as h:
        h.send("in", bought(1, "a", "pear"), CRASH, bought(2, "a", "fig"))
        h.settle()
        assert h.crashes == 1
        assert all(h.replay(e).equal for e in range(1, h.epoch + 1))


def test_keys_that_ran_at_once_are_replayed_one_after_the_other() -> None:
    with Harness(one(Paying, concurrency=3)) as h:
        h.send("in", *(at(i, f"k{i}", who=f"w{i}") for i in range(9)))
        found = h.replay(1)
        assert found.equal
        assert len(found.calls) == 9


class Tables(Computation):
    n: int = state(0)

    def process_table(self, table, ctx):
        counts = [0] * len(ctx.read())
        for i in table.column("key_index").to_pylist():
            counts[i] += 1
        before = ctx.read().column("n").to_pylist()
        ctx.write(n=[b + c for b, c in zip(before, counts, strict=True)])
        ctx.produce_table({"rows": [table.num_rows]})


def test_a_table_shows_its_rows_and_the_state_of_the_keys_asked_for() -> None:
    with Harness(one(Tables), slots=1) as h:
        h.send("in", at(1, "a"), at(2, "b"), at(3, "a"))
        found = h.replay(1, key="a")
        assert found.equal
        (call,) = found.calls
        assert (call.kind, call.rows) == ("table", 3)
        assert (call.before, call.after) == ({"'a'.n": 0}, {"'a'.n": 2})
        assert [(p.stream, p.value) for p in call.produced] == [("out", {"rows": [3]})]
        assert h.replay(1, key="nobody").calls == []


def test_feedback_and_keyless_computations_are_replayed() -> None:
    class Split(Computation):
        def process_record(self, record, ctx):
            for word in record.value["words"].split():
                ctx.produce({"k": word, "left": 2})

    class Loop(Computation):
        seen: int = state(0)

        def process_record(self, record, ctx):
            self.seen += 1
            if record.value["left"]:
                ctx.produce({"k": ctx.key, "left": record.value["left"] - 1})

    p = Pipeline("looping")
    p.read("in", sources.memory([], timestamp="t"))
    p.compute(Split, inputs={"in": None}, outputs="words")
    p.stream("again", feedback=True)
    p.compute(Loop, inputs={"words": "k", "again": "k"}, outputs="again")
    with Harness(p) as h:
        h.send("in", {"words": "the mill the wheel", "t": 5})
        h.settle()
        found = [h.replay(e) for e in range(1, h.epoch + 1)]
        assert all(f.equal for f in found)
        keyless = [c for c in found[0].calls if c.computation == "Split"]
        assert [(c.key, len(c.produced)) for c in keyless] == [(None, 4)]
        assert {c.stream for f in found[1:] for c in f.calls} == {"again"}


def test_ordered_computations_are_replayed_with_what_they_had_held() -> None:
    class Ordered(Computation, ordered=True, ttl="10s"):
        last: int = state(0)

        def process_record(self, record, ctx):
            self.last = record.timestamp
            ctx.produce(record.value["t"])

    with Harness(one(Ordered, timing={"lateness": "2s"})) as h:
        for t in (5, 3, 9, 4):
            h.send("in", at(t * SECOND, "a"))
            h.settle()
        h.advance("30s")
        h.settle()
        assert h.epoch > 3
        assert all(h.replay(e).equal for e in range(1, h.epoch + 1))


# What is refused ----------------------------------------------------------


class Count(Computation):
    n: int = state(0)

    def process_record(self, record, ctx):
        self.n += 1
        ctx.produce({"k": ctx.key, "n": self.n})


def lines(directory: Path, count: int = 60) -> PipelineBuilder:
    (directory / "in").mkdir(exist_ok=True)
    text = "".join(f'{{"k": "key {i % 4}", "t": {i}}}\n' for i in range(count))
    (directory / "in" / "a.jsonl").write_text(text)
    return pipeline_over(directory)


def pipeline_over(directory: Path, name: str = "lines") -> PipelineBuilder:
    p = PipelineBuilder(name)
    p.read("in", sources.jsonl(f"{directory}/in/*.jsonl", timestamp="t"))
    p.compute(Count, inputs={"in": "k"}, outputs="counts")
    p.stream("counts").write(sinks.jsonl(f"{directory}/out"))
    return p


def ran(
    directory: Path, epochs: int, system: System = REAL, **options: Any
) -> tuple[PipelineBuilder, str, Driver]:
    p = lines(directory)
    store = DiskStore(directory / "state", system)
    driver = driver_of(p.freeze(), store, **options)
    run(driver, epochs)
    return p, str(directory / "state"), driver


def test_a_checkpoint_on_disk_is_replayed_and_only_pinned_meanwhile(tmp_path: Path) -> None:
    p, checkpoint, _ = ran(tmp_path, 5)
    before = {f: f.read_bytes() for f in Path(checkpoint).rglob("*") if f.is_file()}
    found = replay(p, checkpoint=checkpoint, epoch=4)
    assert found.equal
    assert len(found.calls) == 3
    assert {f: f.read_bytes() for f in Path(checkpoint).rglob("*") if f.is_file()} == before
    assert Checkpoint(checkpoint).epoch == 5


def test_an_epoch_not_kept_any_more_is_refused_with_those_that_are(tmp_path: Path) -> None:
    p, checkpoint, driver = ran(tmp_path, 18, FILES, retain_epochs=3)
    collect(driver.store, driver.log, needed_by(driver.history, driver._deliverer.acknowledged()))
    kept = kept_epochs(driver.store)
    assert kept[-2:] == [17, 18]
    assert 9 not in kept
    with pytest.raises(
        IncompatibleState, match=r"epoch 9 is not kept.*17 to 18.*kept 2 epochs.*--retain"
    ):
        replay(p, checkpoint=checkpoint, epoch=9)
    for epoch in kept:
        assert replay(p, checkpoint=checkpoint, epoch=epoch).equal


def test_answers_that_were_collected_are_told_apart_from_code_that_asks_anew(
    tmp_path: Path,
) -> None:
    p = PipelineBuilder("paying")
    p.read("in", sources.memory([at(i, i, who=f"w{i}") for i in range(6)], timestamp="t"))
    p.compute(Paying, inputs={"in": "k"})
    store = DiskStore(tmp_path / "state")
    run(driver_of(p.freeze(), store), 2)
    assert replay(p, checkpoint=str(tmp_path / "state"), epoch=2).equal
    directory = paths.determinants_directory(1)
    store.put_if_absent(paths.closed_marker(directory), b"")
    assert store.retire_directory(directory)
    with pytest.raises(
        IncompatibleState, match="epoch 2 called external systems, and their answers"
    ):
        replay(p, checkpoint=str(tmp_path / "state"), epoch=2)


def test_epochs_of_a_long_log_are_found_from_a_snapshot(tmp_path: Path) -> None:
    p = PipelineBuilder("long")
    p.read("in", sources.memory([at(i, i % 5) for i in range(400)], timestamp="t"))
    p.compute(Count, inputs={"in": "k"}, outputs="counts")
    store = MemoryStore()
    run(driver_of(p.freeze(), store), 100)
    for epoch in (86, 96, 97, 98, 100):
        assert replay_epoch(p.freeze(), store, epoch).equal


def test_an_epoch_not_committed_is_refused_with_the_reason(tmp_path: Path) -> None:
    p, checkpoint, driver = ran(tmp_path, 3)
    with pytest.raises(IncompatibleState, match=r"epoch 4 is not committed.*It is planned"):
        replay(p, checkpoint=checkpoint, epoch=4)
    driver.stop()
    with pytest.raises(IncompatibleState, match=r"epoch 4 .*voided: the driver was asked to stop"):
        replay(p, checkpoint=checkpoint, epoch=4)
    with pytest.raises(IncompatibleState, match="the last one that is: 3"):
        replay(p, checkpoint=checkpoint, epoch=9)


def test_another_pipeline_and_other_computations_are_refused(tmp_path: Path) -> None:
    _, checkpoint, _ = ran(tmp_path, 2)
    with pytest.raises(IncompatibleState, match="belongs to pipeline 'lines', not 'other'"):
        replay(pipeline_over(tmp_path, "other"), checkpoint=checkpoint, epoch=1)
    p = pipeline_over(tmp_path)
    p.compute(Count, inputs={"counts": "k"}, name="Again")
    with pytest.raises(IncompatibleState, match="Again did not take part"):
        replay(p, checkpoint=checkpoint, epoch=1)


def test_changed_code_is_told_and_run_all_the_same(tmp_path: Path) -> None:
    _, checkpoint, _ = ran(tmp_path, 2)

    class Count(Computation):
        n: int = state(0)

        def process_record(self, record, ctx):
            self.n += 2
            ctx.produce({"k": ctx.key, "n": self.n})

    p = PipelineBuilder("lines")
    p.read("in", sources.jsonl(f"{tmp_path}/in/*.jsonl", timestamp="t"))
    p.compute(Count, inputs={"in": "k"}, outputs="counts")
    p.stream("counts").write(sinks.jsonl(f"{tmp_path}/out"))
    found = replay(p, checkpoint=checkpoint, epoch=2)
    assert not found.equal
    assert any("the code has changed since" in w for w in found.warnings)


@pytest.mark.parametrize("harm", ["deleted", "rewritten"])
def test_input_that_has_gone_is_named(tmp_path: Path, harm: str) -> None:
    p, checkpoint, _ = ran(tmp_path, 3)
    file = tmp_path / "in" / "a.jsonl"
    if harm == "deleted":
        file.unlink()
    else:
        file.write_text(file.read_text().replace("key", "yek"))
    with pytest.raises(SourceError, match=r"epoch 2 cannot be run again.*a\.jsonl"):
        replay(p, checkpoint=checkpoint, epoch=2)


@pytest.mark.parametrize("kind", ["by name", "frame", "generated"])
def test_sources_with_a_workspace_are_read_again_without_writing_there(
    tmp_path: Path, kind: str
) -> None:
    import pyarrow as pa

    lines(tmp_path)
    made = {
        "by name": lambda: sources.jsonl(
            f"{tmp_path}/in/*.jsonl", timestamp="t", ordered_by_name=True
        ),
        "frame": lambda: sources.dataframe(
            pa.table({"k": ["a", "b"] * 10, "t": list(range(20))}), timestamp="t"
        ),
        "generated": lambda: sources.generate(
            lambda n, dice: {"k": dice.randrange(3)}, count=50, rate=1000
        ),
    }[kind]

    def pipeline() -> PipelineBuilder:
        p = PipelineBuilder("spaces")
        p.read("in", made())
        p.compute(Count, inputs={"in": "k"}, outputs="counts")
        return p

    store = DiskStore(tmp_path / "state")
    run(driver_of(pipeline().freeze(), store), 4)
    before = {f: f.read_bytes() for f in (tmp_path / "state").rglob("*") if f.is_file()}
    if kind == "by name":  # a run would refuse it; what was planned can be read all the same
        (tmp_path / "in" / "z.jsonl").write_text('{"k": "new", "t": 1}\n')
    assert replay(pipeline(), checkpoint=str(tmp_path / "state"), epoch=2).equal
    after = {f: f.read_bytes() for f in (tmp_path / "state").rglob("*") if f.is_file()}
    assert after == before


# Pins ---------------------------------------------------------------------


def test_collection_leaves_what_is_pinned_until_the_pin_goes(tmp_path: Path) -> None:
    _, _, driver = ran(tmp_path, 8, FILES, retain_epochs=2)
    store = driver.store
    orphan = paths.content_name(3, "zombie", "0" * 32, ".arrow")
    named = {f"{paths.state_directory('Count')}/{orphan}", f"{paths.OUTBOX}/{orphan}"}
    for name in named:
        store.write(name, b"")
    staged = paths.staged_directory("counts")
    oldest = store.list(staged)[0]

    def there() -> set[str]:
        places = (paths.state_directory("Count"), paths.OUTBOX, staged)
        return {f"{place}/{name}" for place in places for name in store.list(place)}

    named.add(f"{staged}/{oldest}")
    with pinned(store, "test", named, seconds=60):
        collect(store, driver.log, needed_by(driver.history, driver._deliverer.acknowledged()))
        assert named <= there()
    assert store.list(paths.PINS) == []
    collect(store, driver.log, needed_by(driver.history, driver._deliverer.acknowledged()))
    assert not named & there()


def test_a_pin_of_a_reader_that_died_expires() -> None:
    watch = Stopwatch()
    store = MemoryStore(watch)
    reader = pinned(store, "test", ["state/C/x"], seconds=60, log_from=7, determinants=3)
    reader.__enter__()  # and never leaves
    found = pins_of(store)
    assert (found.files, found.log_from, found.determinants) == (
        frozenset({"state/C/x"}),
        7,
        frozenset({3}),
    )
    watch.now_s += 61
    assert pins_of(store).files == frozenset()
    assert store.list(paths.PINS) == []


def test_a_checkpoint_that_cannot_be_written_is_replayed_without_a_pin() -> None:
    class ReadOnly(MemoryStore):
        def put_if_absent(self, name: str, data: bytes) -> bool:
            raise StoreError("read-only")

    with Harness(one(Basket)) as h:
        baskets(h)
        copy = ReadOnly()
        copy.files = dict(h._runtime.store.files)
        with pinned(copy, "test", [], seconds=60) as done:
            assert not done
        assert replay_epoch(h._topology, copy, 2, prepared=True).equal


def test_a_damaged_pin_holds_nothing_and_stops_nobody() -> None:
    store = MemoryStore()
    store.write(paths.pin("x"), b"rubbish")
    assert pins_of(store).files == frozenset()


@pytest.mark.parametrize("system", [FILES, REAL])
def test_what_is_replayed_is_pinned_while_it_runs(tmp_path: Path, system: System) -> None:
    seen: list[Pinned] = []
    store = DiskStore(tmp_path / "state", system)

    class Looking(Computation):
        n: int = state(0)

        def process_record(self, record, ctx):
            self.n += 1
            seen.append(pins_of(store))

    p = PipelineBuilder("pins")
    p.read("in", sources.memory([at(i, "a") for i in range(12)], timestamp="t"))
    p.compute(Looking, inputs={"in": "k"})
    run(driver_of(p.freeze(), store), 3)
    seen.clear()
    assert replay(p, checkpoint=str(tmp_path / "state"), epoch=3).equal
    assert seen
    for pin in seen:
        if system is FILES:
            assert len(pin.files) == 2
        else:  # both deltas ride in the log
            assert not pin.files and pin.log_from is not None and pin.log_from <= 3


def test_sources_are_told_to_let_go_only_of_what_no_kept_epoch_reads() -> None:
    released: list[int] = []
    settled: list[int] = []
    source = sources.memory([at(i) for i in range(60)], timestamp="t")
    source.release = lambda split, position: released.append(position)  # type: ignore[method-assign]
    source.settle = lambda split, position: settled.append(position)  # type: ignore[method-assign]
    p = PipelineBuilder("release")
    p.read("in", source)
    p.compute(Count, inputs={"in": "k"}, outputs="counts")
    store = MemoryStore()
    run(driver_of(p.freeze(), store, retain_epochs=4), 10)
    assert settled[-1] == 30
    assert released[-1] == 21
    released.clear()
    run(driver_of(p.freeze(), store, retain_epochs=4), 1)
    assert released[0] == 21
    failpoints.disarm()


def test_the_substrate_of_a_run_is_not_needed(tmp_path: Path) -> None:
    p, checkpoint, driver = ran(tmp_path, 2)
    assert isinstance(driver.substrate, Local)
    driver.close()
    assert replay(p, checkpoint=checkpoint, epoch=2).equal
