"""Duplicate records by id: judged once, remembered for the slack, then too late."""

import pytest
from tests.unit.pipelines import at

from headrace import Computation, InvalidPipeline, InvalidRecord, Pipeline, sources, state, to
from headrace.testing import CRASH, Harness


class Count(Computation):
    n: int = state(0)

    def process_record(self, record, ctx):
        self.n += 1
        ctx.produce([record.value.get("id"), self.n])


def pipeline(slack="100us", errors="stop", **timing):
    p = Pipeline("dedup")
    timing = {"timestamp": "t", "id": "id", "id_slack": slack, **timing}
    p.read("in", sources.memory([], **timing), errors=errors)
    p.compute(Count, inputs={"in": "k"}, outputs="out")
    return p


def test_the_first_record_of_an_id_counts_within_an_epoch_and_between():
    with Harness(pipeline(), slots=3) as h:
        h.send("in", at(1, id=1), at(1, id=1), at(2, id=2), CRASH, at(3, id=1), at(4, id=3), CRASH)
        assert [i for i, _ in h.read("out")] == [1, 2, 3]
        assert h.counts["in.dedup.duplicates"] == 2


@pytest.mark.parametrize("watermark", [50, 100, 101, 102, 150])
def test_a_duplicate_is_a_duplicate_or_too_late_never_new(watermark):
    with Harness(pipeline(slack="100us")) as h:
        h.send("in", at(1, id=1))
        h.send("in", at(watermark, id=2))
        h.send("in", at(1, id=1))
        assert [i for i, _ in h.read("out")] == [1, 2]
        judged = "duplicates" if watermark <= 101 else "late"
        assert h.counts[f"in.dedup.{judged}"] == 1


def test_a_late_record_within_the_slack_is_new():
    with Harness(pipeline(slack="100us")) as h:
        h.send("in", at(101, id=1))
        h.send("in", at(1, id=2), at(0, id=3))
        assert [i for i, _ in h.read("out")] == [1, 2]


def test_ids_are_forgotten_when_the_slack_has_passed_and_hold_nothing():
    with Harness(pipeline(slack="100us")) as h:
        h.send("in", at(1, id=1), at(50, id=2))
        assert h.watermarks()["Count"] == 50
        assert sorted(h.keys("in.dedup")) == [1, 2]
        h.send("in", at(102, id=3))
        assert sorted(h.keys("in.dedup")) == [2, 3]


def test_who_asks_for_it_sees_the_duplicates_also_of_several_sources():
    p = pipeline()
    p.read("more", sources.memory([], timestamp="t", id="id"))
    p.compute(Count, inputs={"in": (), "more": ()}, outputs="all", name="All", dedup=False)
    with Harness(p) as h:
        h.send("in", at(1, id=1), at(1, id=1))
        h.send("more", at(1, id=1), at(1, id=1))
        assert len(h.read("out")) == 1
        assert [n for _, n in h.read("all")] == [1, 2, 3, 4]


def test_a_record_without_an_id_follows_the_sources_policy():
    with Harness(pipeline()) as h:
        h.send("in", at(1))
        with pytest.raises(InvalidRecord, match="no column 'id'"):
            h.settle()
    with Harness(pipeline(errors=to("dead"))) as h:
        h.send("in", at(1), at(2, id=2))
        assert len(h.read("dead")) == len(h.read("out")) == 1


def test_the_names_it_needs_must_be_free():
    p = pipeline()
    p.compute(Count, inputs={"in": "k"}, name="in.dedup")
    with pytest.raises(InvalidPipeline, match=r"'in\.dedup' is needed"):
        p.validate()
