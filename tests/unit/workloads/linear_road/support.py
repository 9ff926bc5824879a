"""A small crowded road, and runs over it without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace import Pipeline, sources
from headrace.model.sink import Sink
from headrace.testing import Harness
from headrace.workloads.linear_road.answers import ANSWER
from headrace.workloads.linear_road.columns import EXPENDITURE, REPORT
from headrace.workloads.linear_road.given import TOOK, given_answers, reports_in
from headrace.workloads.linear_road.pipeline import linear_road
from headrace.workloads.linear_road.traffic import Traffic, TrafficSimulation
from headrace.workloads.linear_road.validator import RoadInput, RoadRequest, RoadVerdict, validate

SHARED_DATA = Path(__file__).parents[5] / "shared" / "data"
SMALL = Traffic(
    roads=2,
    minutes=9,
    seed=7,
    first_rate=6,
    last_rate=26,
    segments=(40, 43),
    incidents_per_hour=120,
    asking=0.05,
)
"""Few segments, so that little traffic is dense enough for tolls and accidents."""


@dataclass
class Run:
    """Some input, in the forms that pipeline and validator take."""

    batches: list[pa.RecordBatch]
    history: pa.Table
    roads: int

    def rows(self) -> list[dict[str, Any]]:
        return [row for batch in self.batches for row in batch.to_pylist()]

    def pipeline(self, sink: Sink | None = None) -> Pipeline:
        source = sources.memory([], timestamp="time", unit="s")
        return linear_road(source, self.history, sink)

    def asked(self) -> RoadInput:
        rows = self.rows()
        requests = [
            RoadRequest(
                row["time"],
                row["vid"],
                row["qid"],
                *((row["day"], row["xway"]) if row["type"] == EXPENDITURE else ()),
            )
            for row in rows
            if row["type"] != REPORT
        ]

        def reports(xway: int) -> Any:
            for second, batch in enumerate(self.batches):
                mine = [r["type"] == REPORT and r["xway"] == xway for r in batch.to_pylist()]
                yield second, reports_in(batch.filter(pa.array(mine, pa.bool_())))

        tolls = {(r["vid"], r["day"], r["xway"]): r["toll"] for r in self.history.to_pylist()}
        return RoadInput(self.roads, reports, requests, tolls)

    def judge(self, answers: list[dict[str, Any]]) -> RoadVerdict:
        schema = ANSWER.append(pa.field(TOOK, pa.float64()))
        table = pa.Table.from_pylist(answers, schema=schema)
        return validate(self.asked(), given_answers(table))


@cache
def small() -> Run:
    simulation = TrafficSimulation(SMALL)
    batches = list(simulation.seconds())
    return Run(batches, simulation.history.table(), SMALL.roads)


@cache
def right_answers() -> tuple[dict[str, Any], ...]:
    """What the pipeline answers to the small road, in one epoch."""
    run = small()
    with Harness(run.pipeline(), twice=False) as h:
        h.send("input", *run.rows())
        h.end()
        return tuple(h.read("answers"))


def in_order(answers: Any) -> list[tuple[Any, ...]]:
    """Answers as a sorted list of tuples."""
    return sorted(tuple(-1 if v is None else v for v in row.values()) for row in answers)
