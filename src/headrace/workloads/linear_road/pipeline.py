"""The Linear Road pipeline.

    input ──► ByKind ──► reports ──► Roads ──► answers ─────────┐
                │                      └─► charges ──► Accounts ─┤──► answers
                ├──► balance requests ────────────────►┘         │
                └──► expenditure requests ──► history ──────────►┘

`ByKind` and the look-up in the history run in the tasks that read, `Roads` is the first level and
`Accounts` the second. `Roads` is keyed by road and direction: 2 L keys. `Accounts` is keyed by
vehicle, because a vehicle pays on all roads into one account.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace import Computation, Pipeline
from headrace.model.context import TableContext
from headrace.model.sink import Sink
from headrace.model.source import Source
from headrace.workloads.linear_road import answers as kinds
from headrace.workloads.linear_road.accounts import Accounts
from headrace.workloads.linear_road.columns import BALANCE, EXPENDITURE, REPORT
from headrace.workloads.linear_road.input_files import first_wrong
from headrace.workloads.linear_road.roads import ANSWERS, CHARGES, KEY, Roads

NAME = "linear-road"
_REPORT = ("time", "vid", "speed", "xway", "lane", "dir", "seg", "pos")


class ByKind(Computation):
    """Sends reports and requests where they are answered."""

    prompt = True

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """Refuses lines that cannot be, and divides the others by their type."""
        columns = {name: column.to_numpy() for name, column in zip(table.schema.names, table)}
        if (wrong := first_wrong(columns)) is not None:
            row = {name: column[wrong[0]] for name, column in columns.items()}
            raise ValueError(f"an input line cannot be: {wrong[1]}. The line: {row}")
        stamps = columns["timestamp"]
        for kind, names, to in (
            (REPORT, _REPORT, "reports"),
            (BALANCE, ("time", "vid", "qid"), "balances"),
            (EXPENDITURE, ("time", "vid", "qid", "day", "xway"), "expenditures"),
        ):
            chosen = np.flatnonzero(columns["type"] == kind)
            if len(chosen):
                some = table.select(names).take(pa.array(chosen))
                ctx.produce_table(some, to=to, timestamp=stamps[chosen], causes=chosen)


class Spent(Computation):
    """Makes answers of what the history says of requests."""

    prompt = True

    def process_table(self, table: pa.Table, ctx: TableContext) -> None:
        """What the history does not have was nothing."""
        columns = {n: table[n].combine_chunks() for n in ("time", "vid", "qid", "xway")}
        toll = pc.fill_null(table["spent"].combine_chunks().cast(pa.int64()), 0)
        made = kinds.answer_table(kinds.EXPENDITURE, **columns, toll=toll)
        every = np.arange(table.num_rows)
        ctx.produce_table(made, timestamp=table["timestamp"].to_numpy(), causes=every)


def linear_road(
    source: Source, history: pa.Table, sink: Sink | None = None, *, roads: type[Roads] = Roads
) -> Pipeline:
    """The pipeline. `history` has the columns vid, day, xway and toll."""
    p = Pipeline(NAME)
    p.read("input", source)
    ports = {name: name for name in ("reports", "balances", "expenditures")}
    p.compute(ByKind, inputs={"input": None}, outputs=ports)
    made = {ANSWERS: "road_answers", CHARGES: "charges"}
    p.compute(roads, inputs={"reports": KEY}, outputs=made, name=Roads.__name__)
    p.compute(
        Accounts,
        inputs={"charges": "vid", "balances": "vid"},
        outputs="account_answers",
    )
    if history.num_rows:
        known = history.select(["vid", "day", "xway", "toll"]).rename_columns(
            ["vid", "day", "xway", "spent"]
        )
        found = p.stream("expenditures").lookup(known, on=("vid", "day", "xway"))
    else:
        found = p.stream("expenditures").map_table(_nothing_spent)
    p.compute(Spent, inputs={found.name: None}, outputs="past_answers")
    answers = p.stream("road_answers").union(p.stream("account_answers"), p.stream("past_answers"))
    if sink is not None:
        answers.named("answers").write(sink)
    else:
        answers.named("answers")
    return p


def _nothing_spent(table: pa.Table) -> pa.Table:
    return table.append_column("spent", pa.nulls(table.num_rows, pa.int64()))
