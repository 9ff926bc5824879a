"""Counts per key, and the seeded input on which every system makes them.

Three queries share it (`Query`): the count of each key so far, the same in windows, and the
keys with the largest counts. The first is the simplest stateful question: how often has each key
been seen so far? After every epoch the new count of every touched key must be delivered. With a
call per record a record counts as many times as its `value` says, so that user code
has to read it: the count is then a sum.

Invariants:
- The input is a pure function of the workload: same workload, same bytes of data,
  so two systems, two rounds or two machines answer the same question.
- One file is one epoch. File names and modification times both grow with the
  epoch, because some readers order by name and others (Spark) by time.
- `expected_counts` never reads the files, so it also catches a reader that lost
  or repeated one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.bench.nexmark import answers as nexmark
from headrace.errors import HeadraceError

Hook = Literal["table", "record"]
SinkKind = Literal["noop", "parquet"]
Columns = Literal["key", "all"]
Query = Literal["keyed-count", "windowed-count", "top-k", "q3", "q8", "q11"]

# Small enough that filling millions of keys does not need one giant epoch, large
# enough that it is soon done.
PRELOAD_RECORDS_PER_EPOCH = 500_000

# Several row groups per large file let a system read one epoch with every core.
ROW_GROUP_RECORDS = 125_000

FIRST_TIMESTAMP_US = 1_700_000_000_000_000
FIRST_FILE_MTIME_S = 1_700_000_000
VALUE_LIMIT = 1_000
TOP = 10
"""How many keys top-k asks for."""

INPUT_SCHEMA = pa.schema([("key", pa.string()), ("ts", pa.int64()), ("value", pa.int64())])
COUNTS_SCHEMA = nexmark.COUNTS_SCHEMA


@dataclass(frozen=True)
class CountWorkload:
    """One run of a query over counts per key.

    `keys` distinct keys are drawn from in each epoch, uniformly. With `state_keys`
    that many keys are counted once before anything is measured, and every epoch
    then touches a fresh sample of `keys` of them: the state that exists is large, the state that
    changes is small, and no cache can hold just the keys that will be touched.

    Two settings decide how much work the count is, for every system alike:
    `columns` is what reaches user code, whole records or only their keys, and
    `sink` is where the changed counts go. A system without user code (native
    Spark) reads what it needs in either case. `hook` decides what is counted:
    records ("table"), or what their values add up to ("record").
    """

    records: int = 1_000_000
    keys: int = 1_000
    epochs: int = 10
    warmup_epochs: int = 3
    hook: Hook = "table"
    state_keys: int = 0
    columns: Columns = "all"
    sink: SinkKind = "noop"
    slots: int = 2
    seed: int = 1
    query: Query = "keyed-count"
    """What is asked: see `bench.windowed` for counts in windows, `bench.nexmark` for q3 to q11."""
    hot: float = 0.0
    """The share of the records that one key gets; the rest is dealt evenly."""

    def __post_init__(self) -> None:
        least = {"records": 1, "keys": 1, "epochs": 1, "slots": 1}
        least |= {"warmup_epochs": 0, "state_keys": 0, "seed": 0}
        for name, limit in least.items():
            given = getattr(self, name)
            if given < limit:
                raise HeadraceError(f"{self.query}: {name} must be at least {limit}, not {given}")
        if not 0 <= self.hot < 1:
            raise HeadraceError(f"{self.query}: hot must be from 0 to below 1, not {self.hot}")
        allowed = {"hook": get_args(Hook), "columns": get_args(Columns), "sink": get_args(SinkKind)}
        allowed["query"] = get_args(Query)
        for name, choices in allowed.items():
            given = getattr(self, name)
            if given not in choices:
                raise HeadraceError(
                    f"{self.query}: {name} must be one of {', '.join(choices)}, not {given!r}"
                )
        if self.adds_values and self.columns == "key":
            raise HeadraceError(
                f'{self.query}: hook="record" reads the value of each record, which columns="key" '
                'leaves out; choose columns="all"'
            )

    @property
    def adds_values(self) -> bool:
        """Whether a record counts as often as its value says, and not once."""
        return self.hook == "record"

    @property
    def preload_epochs(self) -> int:
        """How many epochs fill the state before warm-up."""
        return math.ceil(self.state_keys / PRELOAD_RECORDS_PER_EPOCH)

    @property
    def first_measured_epoch(self) -> int:
        """Epochs before this one are run, checked and delivered, but not timed."""
        return self.preload_epochs + self.warmup_epochs + 1

    @property
    def last_epoch(self) -> int:
        """The number of the last epoch; epochs count from 1."""
        return self.preload_epochs + self.warmup_epochs + self.epochs

    @property
    def measured_records(self) -> int:
        """The records of all measured epochs together."""
        return self.records * self.epochs

    def records_in(self, epoch: int) -> int:
        """How many records epoch number `epoch` holds."""
        if epoch > self.preload_epochs:
            return self.records
        start = (epoch - 1) * PRELOAD_RECORDS_PER_EPOCH
        return min(self.state_keys - start, PRELOAD_RECORDS_PER_EPOCH)


def write_input(workload: CountWorkload, directory: Path) -> list[Path]:
    """Write one Parquet file per epoch and return them in epoch order."""
    directory.mkdir(parents=True, exist_ok=True)
    if workload.query in nexmark.QUERIES:
        return _write_events(workload, directory)
    paths = []
    first_timestamp = FIRST_TIMESTAMP_US
    for epoch, ids, values in _epochs(workload):
        table = pa.table(
            [
                key_names(ids),
                np.arange(first_timestamp, first_timestamp + len(ids), dtype=np.int64),
                values,
            ],
            schema=INPUT_SCHEMA,
        )
        first_timestamp += len(ids)
        path = directory / f"epoch-{epoch:06d}.parquet"
        pq.write_table(table, path, row_group_size=ROW_GROUP_RECORDS)
        mtime = FIRST_FILE_MTIME_S + epoch
        os.utime(path, (mtime, mtime))
        paths.append(path)
    return paths


def _event_ranges(workload: CountWorkload) -> list[tuple[int, int]]:
    """The numbers of the events of each epoch."""
    return [(e * workload.records, (e + 1) * workload.records) for e in range(workload.last_epoch)]


def _write_events(workload: CountWorkload, directory: Path) -> list[Path]:
    paths = []
    for number, (first, end) in enumerate(_event_ranges(workload), start=1):
        paths.append(directory / f"epoch-{number:06d}.parquet")
        nexmark.write_events(paths[-1], first, end, workload.seed)
        os.utime(paths[-1], (FIRST_FILE_MTIME_S + number,) * 2)
    return paths


def expected_counts(workload: CountWorkload) -> pa.Table:
    """The right answer after the last epoch: `key, count`, for every key seen."""
    if workload.query in nexmark.QUERIES:
        rows = nexmark.expected_rows(workload.query, _event_ranges(workload), workload.seed)
        return nexmark.rows_as_counts(workload.query, rows, judged_until(workload))
    if workload.query != "keyed-count":
        return _expected_in_windows(workload)
    totals = np.zeros(max(workload.keys, workload.state_keys), dtype=np.int64)
    for _, ids, values in _epochs(workload):
        if workload.adds_values:
            np.add.at(totals, ids, values)
        else:
            totals += np.bincount(ids, minlength=len(totals))
    seen = np.flatnonzero(totals)
    return pa.table([key_names(seen), totals[seen]], schema=COUNTS_SCHEMA)


def window_us(workload: CountWorkload) -> int:
    """The size of windows: four to an epoch, as there is a record every microsecond."""
    return max(workload.records // 4, 1)


def judged_until(workload: CountWorkload) -> int:
    """Only windows that end by this time are compared.

    Spark keeps its watermark in milliseconds and closes windows a micro-batch later, so the last
    windows that it has closed may differ from ours.
    """
    records = sum(workload.records_in(e) for e in range(1, workload.last_epoch))
    if workload.query in nexmark.QUERIES:
        return nexmark.judged_until(records, workload.seed)
    return (FIRST_TIMESTAMP_US + records) // 1_000 * 1_000


def windowed_counts(workload: CountWorkload, keys: Any, starts: Any, counts: Any) -> pa.Table:
    """Rows of closed windows as `key, count`: a key and the start of its window as one text."""
    table = pa.table({"key": keys, "start": starts, "count": counts})
    table = table.filter(pc.field("start") + window_us(workload) <= judged_until(workload))
    texts = pc.cast(table["start"], pa.string())
    names = pc.binary_join_element_wise(table["key"], texts, "@")
    return pa.table([names, table["count"].cast(pa.int64())], schema=COUNTS_SCHEMA)


def _expected_in_windows(workload: CountWorkload) -> pa.Table:
    """Counts per key and window, of windows that have closed; with top-k only the ten largest."""
    size = window_us(workload)
    first = FIRST_TIMESTAMP_US
    starts, keys, counts = [], [], []
    every = np.concatenate([ids for _, ids, _ in _epochs(workload)])
    last = first + len(every) - 1
    for start in range(first // size * size, last - size + 1, size):
        seen = np.bincount(every[max(start - first, 0) : start + size - first])
        ids = np.flatnonzero(seen)
        if workload.query == "top-k":
            ids = ids[np.lexsort((ids, -seen[ids]))][:TOP]
        starts += [start] * len(ids)
        keys.append(ids)
        counts.append(seen[ids])
    numbers = np.concatenate(keys) if keys else np.empty(0, np.int64)
    totals = np.concatenate(counts) if counts else np.empty(0, np.int64)
    return windowed_counts(
        workload, key_names(numbers), pa.array(starts, pa.int64()), pa.array(totals, pa.int64())
    )


def key_names(ids: npt.NDArray[np.int64]) -> Any:
    """Turn key numbers into keys: 123 is `k000123`."""
    digits = pc.utf8_lpad(pc.cast(pa.array(ids), pa.string()), 6, "0")
    return pc.binary_join_element_wise("k", digits, "")


def _epochs(
    workload: CountWorkload,
) -> Iterator[tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield `(epoch, key numbers, values)`, each epoch from its own seed."""
    for epoch in range(1, workload.last_epoch + 1):
        random = np.random.default_rng([workload.seed, epoch])
        count = workload.records_in(epoch)
        if epoch <= workload.preload_epochs:
            start = (epoch - 1) * PRELOAD_RECORDS_PER_EPOCH
            ids = np.arange(start, start + count, dtype=np.int64)
        else:
            ids = random.integers(0, workload.keys, count, dtype=np.int64)
            if workload.hot:
                ids[random.random(count) < workload.hot] = 0
            if workload.state_keys > workload.keys:
                ids = random.choice(workload.state_keys, workload.keys, replace=False)[ids]
        # From 1 on: a key whose sum is 0 need not be in any system's state.
        yield epoch, ids, random.integers(1, VALUE_LIMIT, count, dtype=np.int64)
