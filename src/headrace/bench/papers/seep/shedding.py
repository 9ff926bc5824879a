"""SEEP's figure 8: a top-k query that starts overloaded and losing, and grows until none is lost.

Two stages: one that parses records and has no state of its own, and one that counts. Both shed what
a limited slot cannot serve. A slot is limited if it is much slower than the others of its stage, so
one key is hot at first; the balancer and the scaler take over from there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from random import Random
from typing import Any

from headrace.bench.frame.rounds import Say
from headrace.bench.papers.local.arrivals import Arrivals, ArrivalSchedule, Phase
from headrace.bench.papers.local.engine import LocalRun
from headrace.bench.papers.local.serving import EMULATED, itself
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict
from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.record import Record
from headrace.model.state import state
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.elastic.settings import EVEN, Scale

PARSE, COUNT = "parse", "count"
PARSE_US, COUNT_US = 4_000, 1_000
LANGUAGES = 200
RATE = 750
"""Keeps three slots busy with parsing, and less than one with counting."""
SECONDS = 40.0
MAX_SLOTS = 12


class Parse(Computation):
    """Takes its time, and passes the language on; it keeps nothing."""

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Parses one record."""
        time.sleep(PARSE_US / 1e6)
        ctx.produce(record.value % LANGUAGES)


class CountLanguage(Computation):
    """Counts the records of a language."""

    count: int = state(0)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Counts one record."""
        time.sleep(COUNT_US / 1e6)
        self.count += 1


def measure(say: Say) -> Points:
    """What is dropped, and how many slots each stage has, over time."""
    arrivals = Arrivals(ArrivalSchedule([Phase(SECONDS, RATE)]), _page)
    pipeline = PipelineBuilder("top-k")
    pipeline.read("pages", arrivals)
    pipeline.compute(
        Parse, inputs={"pages": itself}, outputs="languages", name=PARSE, overload="shed"
    )
    pipeline.compute(
        CountLanguage, inputs={"languages": itself}, outputs="counts", name=COUNT, overload="shed"
    )
    run = LocalRun(
        pipeline, threads=MAX_SLOTS, arrivals=arrivals, slots=2, max_slots=MAX_SLOTS, balance=EVEN,
        scale=Scale(every=1, cooldown="5s", drain="5s"), straggler_s=1.0, epoch_target_s=0.5,
        background=True,
    )  # fmt: skip
    ran = run.read(arrivals.schedule.count)
    counters = run.driver.ledger.counters
    run.close()
    points: Points = {
        "emulated": EMULATED,
        "epochs": [
            [round(e.at_s, 2), e.records, e.shed, e.slots[PARSE], e.slots[COUNT]]
            for e in ran.epochs
        ],
        "shed": ran.epochs[-1].shed,
        "records": counters.records,
        "decisions": [[at, text] for at, text in ran.told("scaler")],
        "limits": [[at, text] for at, text in ran.told("overload")],
        "behind_s": round(max(0.0, ran.epochs[-1].at_s - SECONDS), 2),
    }
    say(f"{points['shed']} of {points['records']} records were dropped; {points['decisions']}")
    return points


def judge(points: Mapping[str, Any]) -> ShapeVerdict:
    """Loss at first, none in the end; the stage without state grows first."""
    epochs = points["epochs"]
    third = points["epochs"][-1][0] / 3
    early = max((shed for at, _, shed, _, _ in epochs if at <= 2 * third), default=0)
    shape = Judgement().at_least("records dropped in the first two thirds", early, 1)
    shape.at_most("records dropped in the last third", points["shed"] - early, 0)
    first = [text for _, text in points["decisions"]][:1]
    grown = bool(first) and first[0].startswith(PARSE)
    shape.claim(f"the stateless stage scales first: {first or 'no decision'}", grown)
    return shape.at_most("seconds behind at the end", points["behind_s"], 3.0).verdict()


def _page(n: int, dice: Random) -> int:
    """Half of the pages of the first seconds have one key."""
    return 0 if n < 8 * RATE and n % 2 else n


SEEP_8 = PaperRow(
    "seep-8",
    "top-k starts overloaded and losing, and ends at 550,000 tuples/s",
    f"without Spark, load shedding on, scaler and balancer on; {EMULATED} ({PARSE_US} us to parse, "
    f"{COUNT_US} us to count)",
    "loss goes to 0; the stateless stage scales first",
    measure,
    judge,
    note="overload of all slots alike is met by back-pressure and not by loss: only a slot that is "
    "slower than most others of its stage sheds",
)
