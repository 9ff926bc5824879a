"""SEEP's figure 8: a top-k query that starts overloaded and losing, and grows until none is lost.

Two stages: one that parses records and has no state of its own, and one that counts. Both shed what
a limited slot cannot serve. A slot gets a limit if it holds up epochs that were quick before, and
most slots of its stage are quick still. So all slots have little to do for a moment; then the rate
rises, and one slot of four gets most of it, by many keys. The scaler looks as rarely as SEEP's did,
every five seconds and twice, so what cannot be served is lost until then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np

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
from headrace.model.values.keys import encode_key, hash_key
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.elastic.settings import OFF, Scale
from headrace.plan.rings.ring import Ring

PARSE, COUNT = "parse", "count"
PARSE_US, COUNT_US = 4_000, 1_000
LANGUAGES = 200
SLOTS = 4
QUIET_S, QUIET_RATE = 5.0, 150
RATE = 750
"""Keeps three slots busy with parsing, and less than one with counting."""
HOT = 0.6
"""The share of records for the slot that is hot at first: nearly twice what it can parse."""
SECONDS = 45.0
PACE_S = 0.5
"""How often an epoch begins."""
TARGET_S = 1.0
"""How long an epoch should take; one that must shed takes as long."""
REPORT_EPOCHS = 5
"""The scaler hears of the load every five such epochs."""
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
    phases = [Phase(QUIET_S, QUIET_RATE), Phase(SECONDS - QUIET_S, RATE)]
    arrivals = Arrivals(ArrivalSchedule(phases), pages())
    pipeline = PipelineBuilder("top-k")
    pipeline.read("pages", arrivals)
    pipeline.compute(
        Parse, inputs={"pages": itself}, outputs="languages", name=PARSE, overload="shed"
    )
    pipeline.compute(
        CountLanguage, inputs={"languages": itself}, outputs="counts", name=COUNT, overload="shed"
    )
    run = LocalRun(
        pipeline, threads=MAX_SLOTS, arrivals=arrivals, pace_s=PACE_S, slots=SLOTS,
        max_slots=MAX_SLOTS, balance=OFF,
        scale=Scale(every=REPORT_EPOCHS, cooldown="5s", drain="5s"), straggler_s=PACE_S,
        epoch_target_s=TARGET_S, background=True,
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


def pages() -> Callable[[int, Random], int]:
    """Record number n -> its page: most of them belong to the first slot of the first ring."""
    quiet = int(QUIET_S * QUIET_RATE)
    ring = Ring.even(SLOTS)
    found: list[list[int]] = [[] for _ in range(SLOTS)]
    for page in range(100 * SLOTS):
        hashes = np.array([hash_key(encode_key(page))], np.uint64)
        found[int(ring.place(hashes)[0])].append(page)

    def page_of(n: int, dice: Random) -> int:
        draw = Random(n)
        is_hot = n >= quiet and draw.random() < HOT
        slot = 0 if is_hot else draw.randrange(SLOTS) if n < quiet else draw.randrange(1, SLOTS)
        return draw.choice(found[slot])

    return page_of


SEEP_8 = PaperRow(
    "seep-8",
    "top-k starts overloaded and losing, and ends at 550,000 tuples/s",
    f"without Spark, load shedding on, the scaler on and told every {REPORT_EPOCHS} epochs; after "
    f"{QUIET_S:g} quiet seconds one of {SLOTS} slots gets {HOT:.0%} of the load; {EMULATED} "
    f"({PARSE_US} us to parse, {COUNT_US} us to count)",
    "loss goes to 0; the stateless stage scales first",
    measure,
    judge,
    note="overload of all slots alike is met by back-pressure and not by loss: only a slot that is "
    "slower than most others of its stage, and than before, sheds. So there are four slots, and a "
    "quiet moment, before one of them is hot",
)
