"""A run's summary tells what was made for nobody."""

from tests.unit.engine.support import driver_of, run

from headrace import Computation, Pipeline, sinks, sources, state, to


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
    expected = "2 dead letters went to 'dead', which nobody reads"
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
    assert driver.summary("end").notes == ("late records go to 'late', which nobody reads",)
