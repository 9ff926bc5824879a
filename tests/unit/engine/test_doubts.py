"""A run asks, once, about what is probably a mistake."""

import pytest
from tests.unit.engine.support import Count, counting, driver_of, follower_of

from headrace import Computation, session, to, tumbling, whole
from headrace.engine.leading.loop import run_loop
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.sinks import memory as memory_sink
from headrace.sources import generate, memory
from headrace.store.memory import MemoryStore


def told_by(topology, store=None, **options):
    notices = []
    run_loop(follower_of(topology, store, on_notice=notices.append, **options))
    return [notice.text for notice in notices if notice.kind == "doubt"]


def renamed(**options):
    p = PipelineBuilder("counting")
    p.read("values", memory([1, 2, 3], timestamps=range(3)))
    key = {"values": lambda value: f"key {value}"}
    p.compute(Count, inputs=key, outputs="counts", name="Tally", **options)
    p.stream("counts").write(memory_sink())
    return p.freeze()


def test_state_that_no_computation_takes_is_told_and_an_alias_takes_it():
    store = MemoryStore()
    assert told_by(counting([1, 2, 3]), store, until="caught_up") == []
    expected = (
        "the checkpoint has state of 'Count', which no computation of this pipeline takes: "
        "aliases=('Count',)?"
    )
    assert told_by(renamed(), store, until="caught_up") == [expected]
    other = MemoryStore()
    told_by(counting([1, 2, 3]), other, until="caught_up")
    assert told_by(renamed(aliases=("Count",)), other, until="caught_up") == []


def timed(values, **timing):
    p = PipelineBuilder("timed")
    given = [{"at": value} for value in values]
    p.read("c", memory(given, timestamp="at", **timing)).write(memory_sink())
    return p.freeze()


@pytest.mark.parametrize(
    ("now", "unit"), [(1_767_225_600, "s"), (1_767_225_600_000, "ms"), (1_767_225_600.5, "s")]
)
def test_timestamps_in_another_unit_are_asked_about_once(now, unit):
    values = [now + second for second in range(8)]
    expected = [f"the timestamps of 'c' are all in early 1970: is unit= right? (unit=\"{unit}\")"]
    assert told_by(timed(values)) == expected
    assert told_by(timed(values, lateness="1h")) == expected
    assert told_by(timed(values, unit=unit)) == []


@pytest.mark.parametrize(
    "values", [[1_767_225_600_000_000], [1, 2, 3], ["2026-01-01T00:00:00Z"], [0], []]
)
def test_other_timestamps_are_taken_as_they_are(values):
    assert told_by(timed(values)) == []


def keyed(key, **options):
    p = PipelineBuilder("keyed")
    given = [{"user": "u", "account": n, "n": n} for n in range(9)]
    p.read("clicks", memory(given, timestamps=range(9))).key_by(key).count("n").named(
        options.pop("name", "counts")
    ).write(memory_sink())
    return p.freeze()


def copy_of(store):
    other = MemoryStore()
    other.files = dict(store.files)
    return other


def one_epoch(topology, store):
    driver = driver_of(topology, store, until="caught_up")
    driver.step()
    driver.close()


def test_another_key_column_over_old_state_is_told_until_it_is_committed():
    store = MemoryStore()
    one_epoch(keyed("user"), store)
    assert told_by(keyed("user"), copy_of(store), until="caught_up") == []
    (told,) = told_by(keyed("account"), store, until="caught_up")
    assert "'counts' takes its key of 'clicks' from 'account' now, and took it from 'user'" in told
    assert told_by(keyed("account"), store, until="caught_up") == []


def test_a_key_of_several_columns_or_a_function_is_another_key():
    for other in (("user", "account"), lambda value: value["user"], ()):
        store = MemoryStore()
        one_epoch(keyed("user"), store)
        assert len(told_by(keyed(other), store, until="caught_up")) == 1


def test_the_key_is_remembered_in_snapshots_and_under_a_new_name():
    store = MemoryStore()
    driver = driver_of(keyed("user"), store, epoch_records=1, until="caught_up")
    for _ in range(4):
        driver.step()
    assert driver.ledger.keys == {"counts": {"clicks": "'user'"}}
    again = driver_of(keyed("user"), store, until="caught_up")
    assert again.ledger.keys == driver.ledger.keys
    again.ledger.rename("counts", "totals")
    assert again.ledger.keys == {"totals": {"clicks": "'user'"}}


def aside(source, key="k", schema=None):
    p = PipelineBuilder("aside")
    p.read("rows", source, errors=to("unread"), schema=schema)
    p.compute(Count, inputs={"rows": key}, outputs="counts", errors=to("dead"))
    for stream in ("counts", "dead", "unread"):
        p.stream(stream).write(memory_sink())
    return p.freeze()


def test_records_that_all_go_aside_are_told_once():
    values = [{"k": "a", "at": "yesterday"}] * 8
    (told,) = told_by(aside(memory(values, timestamp="at")))
    assert told == (
        "no record of 'rows' could be read so far: all 3 records were sent to 'unread', with the "
        "reason. Are its format, schema= and timestamp= right?"
    )
    (told,) = told_by(aside(memory([*[{"x": 1}] * 8, 5], timestamps=range(9)), key="y"))
    assert told == (
        "no record has reached 'Count' so far: all 3 records were sent to 'dead', with the "
        "reason. Is its key right? ('y')"
    )


def test_some_records_aside_are_no_news():
    values = [{"k": "a", "at": "yesterday"}, {"k": "a", "at": 5}, {"at": 6}]
    assert told_by(aside(memory(values, timestamp="at"))) == []


def windowed(source, window=None, **options):
    p = PipelineBuilder("windowed")
    rows = p.read("rows", source).filter(lambda value: True)
    keyed = rows.key_by("k").window(window or tumbling("1h"), **options)
    keyed.count("n").named("hourly").write(memory_sink())
    return p.freeze()


ROWS = [{"k": "a", "at": 1_767_225_600_000_000 + n} for n in range(5)]


def test_a_window_by_event_time_without_timestamps_is_told_once():
    (told,) = told_by(windowed(memory(ROWS)))
    assert "'hourly' cuts 'rows' into windows by event time, but its source has no timest" in told
    (told,) = told_by(windowed(memory(ROWS, lateness="1ms", id="at"), session("5m")))
    assert "'hourly' cuts 'rows.raw'" in told


def test_windows_over_times_that_somebody_gave_are_taken_as_they_are():
    assert told_by(windowed(memory(ROWS, timestamp="at"))) == []
    assert told_by(windowed(memory(ROWS, timestamps=range(5)))) == []
    assert told_by(windowed(memory(ROWS), by="ingestion")) == []
    assert told_by(windowed(memory(ROWS), whole())) == []
    rated = generate(lambda n, random: {"k": "a"}, count=5, rate=10.0)
    assert told_by(windowed(rated)) == []


class Stamps(Computation):
    def process_record(self, record, ctx):
        ctx.produce(record.value, timestamp=record.value["at"])


def test_a_computation_may_give_records_their_times():
    p = PipelineBuilder("stamped")
    p.read("rows", memory(ROWS))
    p.compute(Stamps, inputs={"rows": None}, outputs="timed")
    p.stream("timed").key_by("k").window(tumbling("1h")).count("n").write(memory_sink())
    assert told_by(p.freeze()) == []
