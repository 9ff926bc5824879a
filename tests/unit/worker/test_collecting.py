"""The garbage collector is as it was before, whoever leaves last."""

import gc
from threading import Barrier, Thread
from typing import Any

import pytest

from headrace import Computation, Pipeline, sources
from headrace.testing import Harness
from headrace.worker.garbage import THRESHOLDS, seldom_collecting


def test_tables_run_while_collections_are_seldom_and_hooks_per_record_as_usual() -> None:
    class Looks(Computation):
        def process_record(self, record: Any, ctx: Any) -> None:
            ctx.produce(list(gc.get_threshold()))

    class LooksOnce(Computation):
        def process_table(self, table: Any, ctx: Any) -> None:
            ctx.produce_values([list(gc.get_threshold())], timestamp=[1])

    p = Pipeline("p")
    p.read("in", sources.memory([]))
    p.compute(Looks, inputs={"in": ()}, outputs="records")
    p.compute(LooksOnce, inputs={"in": ()}, outputs="tables")
    usual = gc.get_threshold()
    with Harness(p) as h:
        h.send("in", 1)
        assert h.read("tables") == [list(THRESHOLDS)]
        assert h.read("records") == [list(usual)]
    assert gc.get_threshold() == usual


def test_threads_that_overlap_and_errors_leave_the_usual_thresholds() -> None:
    usual, meet = gc.get_threshold(), Barrier(2, timeout=30)

    def first() -> None:
        with seldom_collecting():
            meet.wait()
            meet.wait()

    thread = Thread(target=first)
    thread.start()
    meet.wait()
    with seldom_collecting():
        meet.wait()
        thread.join()
        assert gc.get_threshold() == THRESHOLDS
    assert gc.get_threshold() == usual
    with pytest.raises(ValueError, match="no"), seldom_collecting():
        raise ValueError("no")
    assert gc.get_threshold() == usual


def test_who_has_switched_collections_off_keeps_them_off() -> None:
    usual = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with seldom_collecting():
            assert gc.get_threshold()[0] == 0
        assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*usual)
