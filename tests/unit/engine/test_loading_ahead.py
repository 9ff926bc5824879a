"""Under recovery="eager", a slot that comes to a process cold loads the keys it will soon need."""

from typing import Any

import pytest
from tests.unit.engine.support import follower_of, run
from tests.unit.systems import limited

from headrace import Computation, Map, state, to
from headrace.errors import InvalidPipeline
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.options import check_options
from headrace.sinks import memory as memory_sink
from headrace.sources import memory
from headrace.store.memory import MemoryStore

VALUES = [i % 10 for i in range(60)]


class Kept(Computation):
    """Counts; a key's timer is far away, and further for larger keys."""

    n: int = state(0)
    seen: Map[int, int] = state()

    def process_record(self, record, ctx):
        self.n += 1
        self.seen[record.timestamp] = self.n
        ctx.set_timer(at=10_000 + ctx.key)
        ctx.produce((ctx.key, self.n, len(self.seen)))

    def process_timer(self, timer, ctx):
        ctx.forget()


def pipeline(**options: Any):
    builder = PipelineBuilder("ahead")
    builder.read("values", memory(VALUES, timestamps=range(len(VALUES))))
    builder.compute(
        Kept, inputs={"values": lambda value: value}, outputs="out", name="C", **options
    )
    builder.stream("out").write(memory_sink())
    return builder.freeze()


def lives(store: MemoryStore, recovery: str, **options: Any):
    """One driver reads a half, another one, in another process, the rest."""
    topology = pipeline(**options)
    given = {"recovery": recovery, "epoch_records": 10, "until": None}
    first = follower_of(topology, store, **given)
    run(first.take_over(), 3)
    topology = pipeline(**options)
    second = follower_of(topology, store, **given)
    run(second.take_over())
    [outlet] = topology.graph.outlets.values()
    return second.setup.substrate.runtime.cache.objects, outlet.sink.rows


def test_eager_loads_what_is_needed_and_results_are_the_same() -> None:
    use, rows = lives(MemoryStore(), "eager")
    assert (use.prefetched, use.used) == (10, 10)
    assert use.misses == 0 and use.hits == 30
    lazy, same = lives(MemoryStore(), "lazy")
    assert (lazy.prefetched, lazy.used) == (0, 0)
    assert lazy.misses == 10 and lazy.hits == 20
    assert sorted(rows) == sorted(same) and [9, 6, 6] in rows


def test_the_budget_is_kept_and_keys_with_the_next_timers_come_first() -> None:
    store = MemoryStore(limited(eager_bytes_max=4_000, cached_cells_max=0, window_cells=2))
    use, rows = lives(store, "eager")
    # Each of the two slots loads until it has 4,000 bytes, and loads no key twice.
    assert 2 <= use.prefetched < 10 and use.used == use.prefetched
    assert [9, 6, 6] in rows


def test_objects_that_the_cache_must_not_give_are_not_loaded() -> None:
    use, _ = lives(MemoryStore(), "eager", errors=to("dead"))
    assert use.prefetched == 0


def test_the_options_of_memory_are_checked() -> None:
    assert check_options({}).recovery == "lazy"
    found = check_options({"recovery": "eager", "state_cache": "64MB"})
    assert (found.recovery, found.state_cache_bytes) == ("eager", 64_000_000)
    with pytest.raises(InvalidPipeline, match='recovery= is "lazy" or "eager"'):
        check_options({"recovery": "soon"})
    with pytest.raises(InvalidPipeline, match="state_cache= is a number of bytes"):
        check_options({"state_cache": "much"})
