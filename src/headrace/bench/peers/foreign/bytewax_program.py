"""The queries in Bytewax; run by Bytewax's own interpreter: `python bytewax_program.py TASK.json`.

One worker: more of them share one interpreter lock, and on few cores processes that pickle records
to each other are slower still. The set-up is Bytewax's cheapest: state is in memory, without
recovery snapshots; logic gets all values of a key that lie in one batch (`stateful_batch`), and
sends one row per key and batch. Reading, too, is cheap: Parquet columns become lists at once.

The task is a JSON object: `query`, `adds_values`, `files` (in order), `window_us`, `results` and
`times` (paths to write). Results are a JSON list of `[key, number]`. Times are when each file began
to be read, and the end, in seconds of one clock.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

BATCH_RECORDS = 50_000
WINDOW_US = GAP_US = 10_000_000
EPOCH_0 = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017 (older interpreters run this)


def main(task_file: str) -> None:
    """Runs the query over all files, then writes what came out and when."""
    from bytewax.testing import run_main

    with open(task_file, encoding="utf-8") as file:
        task = json.load(file)
    began: list[float] = []
    rows: dict[str, int] = {}
    run_main(flow_of(task, began, rows))
    began.append(time.perf_counter())
    with open(task["results"], "w", encoding="utf-8") as file:
        json.dump(list(rows.items()), file)
    with open(task["times"], "w", encoding="utf-8") as file:
        json.dump(began, file)


def flow_of(task: dict[str, Any], began: list[float], rows: dict[str, int]) -> Any:
    """The query as a dataflow; `rows` gets the last number of every key."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.operators import StatefulBatchLogic

    class Count(StatefulBatchLogic):
        """Counts values, one number per key and batch."""

        def __init__(self, state: int | None) -> None:
            self.count = state or 0

        def on_batch(self, values: list[Any]) -> tuple[Iterable[int], bool]:
            self.count += len(values)
            return (self.count,), StatefulBatchLogic.RETAIN

        def snapshot(self) -> int:
            return self.count

    class Sum(Count):
        """Adds values up, each read by a line of Python."""

        def on_batch(self, values: list[Any]) -> tuple[Iterable[int], bool]:
            count = self.count
            for record in values:
                count += record[1]
            self.count = count
            return (count,), StatefulBatchLogic.RETAIN

    flow = Dataflow("bench")
    records = op.input("files", flow, files_source(task, began))
    if task["query"] in ("q3", "q8", "q11"):
        joined = op.stateful_batch("answer", records, nexmark_logic(task["query"]))
        counts = op.map("row", joined, lambda row: row[1])
    elif task["query"] == "windowed-count":
        counts = windowed(task, records)
    else:
        logic = Sum if task["adds_values"] else Count
        counts = op.stateful_batch("count", records, logic)
    op.output("rows", counts, rows_sink(rows))
    return flow


def windowed(task: dict[str, Any], records: Any) -> Any:
    """Counts in tumbling windows, by Bytewax's own windows; a row when a window closes."""
    import bytewax.operators as op
    from bytewax.operators import windowing

    size = timedelta(microseconds=task["window_us"])
    clock = windowing.EventClock(
        ts_getter=lambda us: EPOCH_0 + timedelta(microseconds=us),
        # This clock also advances with the machine's: on input that is older than now, a short wait
        # would make records late. So windows close when the input ends.
        wait_for_system_duration=timedelta(days=1),
    )
    windows = windowing.TumblingWindower(length=size, align_to=EPOCH_0)
    counted = windowing.fold_window(
        "count",
        records,
        clock,
        windows,
        builder=int,
        folder=lambda count, us: count + 1,
        merger=lambda left, right: left + right,
    )

    def named(row: tuple[str, tuple[int, int]]) -> tuple[str, int]:
        key, (number, count) = row
        return f"{key}@{number * task['window_us']}", count

    return op.map("name", counted.down, named)


def nexmark_logic(query: str) -> Any:
    """User code of a join or of sessions; the rows of one key as `(text, number)`."""
    from bytewax.operators import StatefulBatchLogic

    class Sellers(StatefulBatchLogic):
        """q3: auctions with their seller; both are kept for ever."""

        def __init__(self, state: Any) -> None:
            kept: tuple[str | None, list[int]] = state or (None, [])
            self.seller, self.offers = kept

        def on_batch(self, values: list[Any]) -> tuple[Iterable[Any], bool]:
            for value in values:
                if isinstance(value, str):
                    self.seller = value
                else:
                    self.offers.append(value)
            if self.seller is None:
                return (), StatefulBatchLogic.RETAIN
            rows = [(f"{self.seller}|{offer}", 1) for offer in self.offers]
            self.offers = []
            return rows, StatefulBatchLogic.RETAIN

        def snapshot(self) -> Any:
            return self.seller, list(self.offers)

    class Newcomers(StatefulBatchLogic):
        """q8: a row as soon as a person has registered and sold in one window."""

        def __init__(self, state: Any) -> None:
            self.windows: dict[int, tuple[str, bool]] = state or {}

        def on_batch(self, values: list[Any]) -> tuple[Iterable[Any], bool]:
            rows = []
            for window, person in values:
                name, sold = self.windows.get(window, ("", False))
                was = name and sold
                name, sold = person or name, sold or not person
                self.windows[window] = (name, sold)
                if name and sold and not was:
                    rows.append((f"{name}|{window}", 1))
            return rows, StatefulBatchLogic.RETAIN

        def snapshot(self) -> Any:
            return dict(self.windows)

    class Sessions(StatefulBatchLogic):
        """q11: a row when the next session begins, or at the end."""

        def __init__(self, state: Any) -> None:
            opened: tuple[str, int, int, int] = state or ("", 0, 0, 0)
            self.key, self.start, self.last, self.count = opened

        def on_batch(self, values: list[Any]) -> tuple[Iterable[Any], bool]:
            rows: list[Any] = []
            for bidder, at in values:
                self.key = bidder
                if self.count and at - self.last > GAP_US:
                    rows += self.row()
                    self.count = 0
                if not self.count:
                    self.start = at
                self.last, self.count = at, self.count + 1
            return rows, StatefulBatchLogic.RETAIN

        def on_eof(self) -> tuple[Iterable[Any], bool]:
            return self.row(), StatefulBatchLogic.DISCARD

        def row(self) -> list[Any]:
            return [(f"{self.key}|{self.start}|{self.last + GAP_US}", self.count)]

        def snapshot(self) -> Any:
            return self.key, self.start, self.last, self.count

    return {"q3": Sellers, "q8": Newcomers, "q11": Sessions}[query]


def chosen_events(query: str, batch: Any) -> list[tuple[str, Any]]:
    """What a query needs of a batch of events, filtered in columns, in order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def of(mask: Any, *columns: str) -> list[list[Any]]:
        rows = batch.filter(mask)
        return [rows.column(column).to_pylist() for column in columns]

    if query == "q11":
        bidders, times = of(pc.equal(batch.column("kind"), "bid"), "bidder", "date_time")
        return [(str(bidder), (bidder, at)) for bidder, at in zip(bidders, times)]
    people = pc.equal(batch.column("kind"), "person")
    auctions = pc.equal(batch.column("kind"), "auction")
    if query == "q3":
        local = pc.is_in(pc.utf8_upper(batch.column("state")), pa.array(["OR", "ID", "CA"]))
        ids, *texts = of(pc.and_(people, local), "id", "name", "city", "state")
        cheap = pc.fill_null(pc.equal(batch.column("category"), 10), False)
        offers, sellers = of(pc.and_(auctions, cheap), "id", "seller")
        made = [(str(person), "|".join(row)) for person, *row in zip(ids, *texts)]
        return made + [(str(seller), offer) for offer, seller in zip(offers, sellers)]
    ids, names, times = of(people, "id", "name", "date_time")
    came = [
        (str(person), (at // WINDOW_US * WINDOW_US, f"{person}|{name}"))
        for person, name, at in zip(ids, names, times)
    ]
    sellers, times = of(auctions, "seller", "date_time")
    sold = [(str(who), (at // WINDOW_US * WINDOW_US, "")) for who, at in zip(sellers, times)]
    return came + sold


def files_source(task: dict[str, Any], began: list[float]) -> Any:
    """Reads the files in order as `(key, value)`: the records, or what the query needs of them."""
    import pyarrow.parquet as pq
    from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition

    def batches() -> Iterable[list[tuple[str, Any]]]:
        for path in task["files"]:
            began.append(time.perf_counter())
            for batch in pq.ParquetFile(path).iter_batches(BATCH_RECORDS):
                if task["query"] in ("q3", "q8", "q11"):
                    yield chosen_events(task["query"], batch)
                    continue
                keys = batch.column("key").to_pylist()
                if task["query"] == "windowed-count":
                    yield list(zip(keys, batch.column("ts").to_pylist()))
                elif task["adds_values"]:
                    # The hook gets whole records; tuples are the cheapest form of them.
                    rest = zip(batch.column("ts").to_pylist(), batch.column("value").to_pylist())
                    yield list(zip(keys, rest))
                else:
                    yield list(zip(keys, keys))

    class Part(StatefulSourcePartition):
        def __init__(self) -> None:
            self._batches = iter(batches())

        def next_batch(self) -> list[tuple[str, Any]]:
            return next(self._batches)

        def snapshot(self) -> None:
            return None

    class Files(FixedPartitionedSource):
        def list_parts(self) -> list[str]:
            return ["files"]

        def build_part(self, step_id: str, for_part: str, resume_state: Any) -> Part:
            return Part()

    return Files()


def rows_sink(rows: dict[str, int]) -> Any:
    """Keeps the last number of every key, in memory."""
    from bytewax.outputs import DynamicSink, StatelessSinkPartition

    class Part(StatelessSinkPartition):
        def write_batch(self, items: list[tuple[str, int]]) -> None:
            rows.update(items)

    class Rows(DynamicSink):
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Part:
            return Part()

    return Rows()


if __name__ == "__main__":
    main(sys.argv[1])
