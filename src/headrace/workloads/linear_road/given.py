"""Reads input and output of a run back, in the form that the validator takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.workloads.linear_road.answers import ALERT, ANSWER, BALANCE, EXPENDITURE, TOLL
from headrace.workloads.linear_road.columns import EXPENDITURE as ASKS_EXPENDITURE
from headrace.workloads.linear_road.columns import REPORT
from headrace.workloads.linear_road.input_files import read_history, read_index, read_seconds
from headrace.workloads.linear_road.validator import (
    GivenAnswers,
    PositionReport,
    RoadAnswer,
    RoadInput,
    RoadRequest,
)

TOOK = "took_s"
"""The column with the time from an answer's cause to its visibility."""
_BLOCK = 100_000


@dataclass(frozen=True)
class Visible:
    """An epoch of the output."""

    path: Path
    at: float
    """When it appeared, in seconds since 1970."""


def visible_epochs(output: Path) -> list[Visible]:
    """The epochs of a file sink. A rename makes an epoch appear, and sets the time of change."""
    return [Visible(path, path.stat().st_ctime) for path in sorted(output.glob("epoch=*"))]


def read_answers(output: Path, arrival: Callable[[int], float | None]) -> pa.Table:
    """All answers, with the time each took; null if its cause was there from the beginning."""
    tables = []
    for epoch in visible_epochs(output):
        table = pa.concat_tables(
            (pq.read_table(file) for file in sorted(epoch.path.glob("*.parquet"))),
            promote_options="default",
        )
        seconds, places = np.unique(table["time"].to_numpy(), return_inverse=True)
        took = [None if (at := arrival(int(s))) is None else epoch.at - at for s in seconds]
        column = pa.array(took, pa.float64()).take(pa.array(places))
        tables.append(table.append_column(TOOK, column))
    if not tables:
        return ANSWER.append(pa.field(TOOK, pa.float64())).empty_table()
    return pa.concat_tables(tables, promote_options="default")


def given_answers(table: pa.Table) -> GivenAnswers:
    """The answers of a table, for the validator."""

    def of(
        kind: int, cause: tuple[str, ...], says: tuple[str, ...], xway: int | None = None
    ) -> Iterator[RoadAnswer]:
        chosen = pc.equal(table["type"], kind)
        if xway is not None:
            chosen = pc.and_(chosen, pc.equal(table["xway"], xway))
        yield from answers(chosen, cause, says)

    def others(roads: int) -> Iterator[RoadAnswer]:
        kinds, xways = table["type"], table["xway"]
        anywhere = pc.is_in(kinds, pa.array([BALANCE, EXPENDITURE], kinds.type))
        on_roads = pc.is_in(kinds, pa.array([TOLL, ALERT], kinds.type))
        known = pc.is_in(xways, pa.array(range(roads), xways.type))
        stray = pc.invert(pc.or_(anywhere, pc.and_(on_roads, known)))
        yield from answers(stray, ("vid", "time"), ("type", "xway"))

    def answers(
        chosen: pa.ChunkedArray, cause: tuple[str, ...], says: tuple[str, ...]
    ) -> Iterator[RoadAnswer]:
        some = table.filter(chosen).select([*cause, *says, TOOK])
        for batch in some.to_batches(_BLOCK):
            columns = [column.to_pylist() for column in batch.columns]
            causes = zip(*columns[: len(cause)], strict=True)
            told = zip(*columns[len(cause) : -1], strict=True)
            yield from map(RoadAnswer, causes, told, columns[-1])

    return GivenAnswers(
        tolls=lambda xway: of(TOLL, ("vid", "time", "dir"), ("lav", "toll"), xway),
        alerts=lambda xway: of(ALERT, ("vid", "time", "dir"), ("xway", "seg"), xway),
        balances=lambda: of(BALANCE, ("qid", "vid", "time"), ("result_time", "balance")),
        expenditures=lambda: of(EXPENDITURE, ("qid", "vid", "time"), ("toll",)),
        others=others,
    )


def asked_of(directory: Path) -> RoadInput:
    """The input of a directory, for the validator."""
    index = read_index(directory)
    requests: list[RoadRequest] = []
    for batch in read_seconds(directory, 0, index.seconds):
        requests += _requests(batch)

    def reports(xway: int) -> Iterator[tuple[int, list[PositionReport]]]:
        for second, batch in enumerate(read_seconds(directory, 0, index.seconds)):
            mine = pc.and_(pc.equal(batch["type"], REPORT), pc.equal(batch["xway"], xway))
            yield second, reports_in(batch.filter(mine))

    history = read_history(directory).to_pylist()
    tolls = {(row["vid"], row["day"], row["xway"]): row["toll"] for row in history}
    return RoadInput(index.roads, reports, requests, tolls)


def reports_in(batch: pa.RecordBatch) -> list[PositionReport]:
    """The rows of a batch of reports."""
    columns = [batch[name].to_pylist() for name in PositionReport._fields]
    return list(map(PositionReport, *columns))


def _requests(batch: pa.RecordBatch) -> Iterable[RoadRequest]:
    rows = batch.filter(pc.not_equal(batch["type"], REPORT)).to_pylist()
    for row in rows:
        past = (row["day"], row["xway"]) if row["type"] == ASKS_EXPENDITURE else ()
        yield RoadRequest(row["time"], row["vid"], row["qid"], *past)
