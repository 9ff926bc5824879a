"""A run's summary tells what was made for nobody."""

from tests.unit.engine.support import driver_of, run

from headrace import Computation, Pipeline, sinks, sources, state, to
from headrace.store.memory import MemoryStore


class Picky(Computation):
    seen: int = state(0)

    def process_record(self, record, ctx):
        if record.value["n"] < 0:
            raise ValueError("negative")
        self.seen += 1
        ctx.produce(self.seen)


def notes(*, sink=True, read=(), values=(1, -1, -2), **options):
    p = Pipeline("told")
    given = [{"k": "a", "n": n} for n in values]
    p.read("in", sources.memory(given, timestamps=range(len(given))))
    p.compute(Picky, inputs={"in": "k"}, outputs="out", **options)
    if sink:
        p.stream("out").write(sinks.memory())
    for stream in read:
        p.stream(stream).write(sinks.memory())
    driver = driver_of(p.freeze())
    run(driver)
    return driver.summary("end").notes


def test_a_pipeline_without_a_sink_writes_nothing_and_says_so():
    assert notes(sink=False, values=(1,)) == ("nothing is written: no stream has a sink",)
    assert notes(values=(1,)) == ()


def test_dead_letters_that_nobody_reads_are_counted_in_a_note():
    expected = "2 dead letters went to 'dead', which nothing reads"
    assert notes(errors=to("dead")) == (expected,)
    assert notes(errors=to("dead"), read=["dead"]) == ()
    assert notes(errors=to("dead"), values=(1,)) == ()


def test_late_records_that_nobody_reads_are_named():
    values = (1, 2, 3, 4)
    p = Pipeline("late")
    given = [{"k": "a", "n": n} for n in values]
    p.read("in", sources.memory(given, timestamps=[10, 20, 30, 1]))
    p.compute(Picky, inputs={"in": "k"}, outputs="out", late=to("late"))
    p.stream("out").write(sinks.memory())
    driver = driver_of(p.freeze(), epoch_records=1)
    run(driver)
    assert driver.summary("end").notes == ("late records go to 'late', which nothing reads",)


class Counts(Picky):
    def process_record(self, record, ctx):
        ctx.count("seen")
        super().process_record(record, ctx)


def one_more_run(store, epochs=1):
    """A run of a few epochs, three records each, that goes on where the one before ended."""
    told = []
    p = Pipeline("growing")
    given = [{"k": "a", "n": n} for n in (1, -1, 2, -3, -4, 5)]
    p.read("in", sources.memory(given, timestamps=range(len(given))))
    p.compute(Counts, inputs={"in": "k"}, outputs="out", errors=to("dead"))
    p.stream("out").write(sinks.memory())
    driver = driver_of(p.freeze(), store, on_epoch=told.append, until="caught_up")
    run(driver, epochs)
    return driver.summary("caught_up"), told


def test_a_summary_counts_its_run_and_says_the_totals_as_totals():
    store = MemoryStore()
    first, _ = one_more_run(store)
    assert (first.records, first.dead) == (3, 1)
    assert first.lines()[1:] == [
        "3 records in 1 epoch; 0 late, 1 dead letter.",
        "  Counts.seen: 2",
        "Note: 1 dead letter went to 'dead', which nothing reads",
    ]
    second, told = one_more_run(store)
    assert (second.records, second.epochs, second.dead) == (3, 1, 2)
    assert (second.total.records, second.total.epochs, second.total.dead) == (6, 2, 3)
    assert second.lines()[1:] == [
        "3 records in 1 epoch; 0 late, 2 dead letters.",
        "  Counts.seen: 1",
        "In all runs of this checkpoint: 6 records in 2 epochs; 0 late, 3 dead letters.",
        "Note: 2 dead letters went to 'dead', which nothing reads",
    ]
    assert (told[-1].records_total, told[-1].dead) == (3, 2)
    assert told[-1].counts == {"Counts.seen": 1}


def test_a_run_that_found_nothing_to_do_counts_nothing():
    store = MemoryStore()
    one_more_run(store, epochs=10)
    summary, told = one_more_run(store)
    assert (summary.records, summary.epochs, summary.dead, told) == (0, 0, 0, [])
    assert (summary.counts, summary.notes) == ({}, ())
