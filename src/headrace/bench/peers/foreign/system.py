"""Runs a foreign peer's program over the same records and reads back its results and times."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq

from headrace.bench.frame.system import BYTEWAX, PYFLINK, Measurement, Task
from headrace.bench.nexmark import answers as nexmark
from headrace.bench.peers.foreign import bytewax_program, pyflink_program
from headrace.bench.peers.foreign.environments import python_of, version_of
from headrace.bench.workload import COUNTS_SCHEMA, CountWorkload, judged_until, window_us
from headrace.errors import HeadraceError
from headrace.workloads.nexmark.events.columns import EVENT_COLUMNS

PYFLINK_EPOCH_RECORDS = 25_000
PYFLINK_EPOCH_EVENTS = 50_000
PYFLINK_EPOCHS = 4
LINES_SHOWN = 15
CHOSEN_SHARE = {"q3": 0.02, "q8": 0.08, "q11": 0.92}
"""Query of Nexmark -> about which share of the events it asks for."""
EVENT_DDL = ", ".join(
    f"`{field.name}` {'BIGINT' if field.type == pa.int64() else 'STRING'}"
    for field in EVENT_COLUMNS
)


def lighter(peer: str, workload: CountWorkload) -> CountWorkload:
    """What a peer is measured on: the workload, cut for PyFlink, which is slower by far.

    The rate of a system that takes records one by one does not depend on how many there are.
    """
    if peer != PYFLINK:
        return workload
    most = PYFLINK_EPOCH_EVENTS if workload.query in nexmark.QUERIES else PYFLINK_EPOCH_RECORDS
    records, keys = min(workload.records, most), workload.keys
    if workload.query == "windowed-count":
        # Windows are as long as a part of an epoch. With as many keys fewer, a window that closes
        # still stands for as many records.
        keys = max(1, keys * records // workload.records)
    return replace(
        workload,
        records=records,
        keys=keys,
        epochs=min(workload.epochs, PYFLINK_EPOCHS),
        warmup_epochs=min(workload.warmup_epochs, 2),
    )


@dataclass(frozen=True)
class Bytewax:
    """One worker, state in memory."""

    name: str = BYTEWAX

    def run(self, task: Task) -> Measurement:
        """All files in one run; time runs from file to file."""
        scratch, workload = task.scratch_dir, task.workload
        results, times = scratch / "results.json", scratch / "times.json"
        run_program(
            self.name,
            bytewax_program.__file__,
            scratch,
            {
                **common(workload),
                "files": [str(path) for path in input_files(task)],
                "results": str(results),
                "times": str(times),
            },
        )
        began = json.loads(times.read_text(encoding="utf-8"))
        epoch_ms = [(after - before) * 1_000 for before, after in itertools.pairwise(began)]
        return Measurement(
            epoch_ms=tuple(epoch_ms[workload.first_measured_epoch - 1 :]),
            records=workload.measured_records,
            counts=counts_of(workload, json.loads(results.read_text(encoding="utf-8"))),
            notes={
                "version": version_of(self.name),
                "workers": "1",
                "state": "in memory, without recovery snapshots",
                "warm-up": f"{workload.warmup_epochs} epochs; start-up is not measured",
            },
        )


@dataclass(frozen=True)
class PyFlink:
    """A local cluster with a slot per core, state on the heap."""

    name: str = PYFLINK
    mode: str = "process"

    def run(self, task: Task) -> Measurement:
        """All files in one job; time runs inside its Python workers, after the warm-up."""
        scratch, workload = task.scratch_dir, task.workload
        lines, directory = scratch / "lines", scratch / "workers"
        lines.mkdir()
        directory.mkdir()
        write_lines(task, lines)
        share = CHOSEN_SHARE.get(workload.query, 1.0)
        run_program(
            self.name,
            pyflink_program.__file__,
            scratch,
            {
                **common(workload),
                "files": str(lines),
                "directory": str(directory),
                "parallelism": workload.slots,
                "mode": self.mode,
                "warm_records": round(workload.records * workload.warmup_epochs * share),
                "columns": EVENT_DDL,
            },
        )
        workers = [json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))]
        # Of Nexmark's events the JVM chooses those that the query asks for.
        chosen = sum(worker["seen"] for worker in workers)
        events = workload.records * workload.last_epoch
        per_chosen = events / chosen if workload.query in nexmark.QUERIES else 1.0
        epoch_s = workload.records / (rate_of(workers) * per_chosen)
        return Measurement(
            epoch_ms=(epoch_s * 1_000,) * workload.epochs,
            records=workload.measured_records,
            counts=counts_of(workload, [row for worker in workers for row in worker["rows"]]),
            notes={
                "version": version_of(self.name),
                "execution mode": self.mode,
                "parallelism": str(workload.slots),
                "state": "on the heap, without checkpoints",
                "input": f"{workload.epochs} epochs of {workload.records:,} records, as CSV",
                "warm-up": f"{workload.warmup_epochs} epochs; start-up is not measured",
                "epochs": "the job has none: their time is the mean",
            },
        )


def rate_of(workers: list[dict[str, Any]]) -> float:
    """Records per second of all Python workers together, after their warm-up.

    The rates of workers are added up, as if all had been busy all the time: that favours the peer.
    """
    rates = [
        (worker["seen"] - worker["warm"]) / (worker["ended"] - worker["began"])
        for worker in workers
        if worker["seen"] > worker["warm"] and worker["ended"] > worker["began"]
    ]
    if not rates:
        raise HeadraceError("pyflink: no worker got a record after its warm-up; give more records")
    return sum(rates)


def common(workload: CountWorkload) -> dict[str, Any]:
    """What both programs are told."""
    return {
        "query": workload.query,
        "adds_values": workload.adds_values,
        "window_us": window_us(workload),
    }


def input_files(task: Task) -> list[Path]:
    """The files of the workload, in order."""
    epochs = range(1, task.workload.last_epoch + 1)
    return [task.input_dir / f"epoch-{epoch:06d}.parquet" for epoch in epochs]


def write_lines(task: Task, directory: Path) -> None:
    """The same records as CSV; for windows as one file, which is read in order by one reader."""
    options = csv.WriteOptions(include_header=False, quoting_style="none")
    tables = [pq.read_table(path) for path in input_files(task)]
    if task.workload.query != "keyed-count":
        tables = [pa.concat_tables(tables)]
    for number, table in enumerate(tables):
        csv.write_csv(table, directory / f"{number:06d}.csv", options)


def counts_of(workload: CountWorkload, rows: list[list[Any]]) -> pa.Table:
    """Rows of a program as `key, count`; of windows only those that every system closes."""
    keys, counts = zip(*rows) if rows else ((), ())
    table = pa.table(
        [pa.array(keys, pa.string()), pa.array(counts, pa.int64())], schema=COUNTS_SCHEMA
    )
    if workload.query == "keyed-count":
        return table
    if workload.query in nexmark.QUERIES:
        return nexmark.until(workload.query, table, judged_until(workload))
    starts = pc.cast(pc.list_element(pc.split_pattern(table["key"], "@"), 1), pa.int64())
    ends = pc.add(starts, window_us(workload))
    return table.filter(pc.less_equal(ends, judged_until(workload)))


def foreign_environment() -> dict[str, str]:
    """Nothing of this project is to be seen there: neither its packages nor its settings."""
    return {k: v for k, v in os.environ.items() if not k.startswith("PY")}


def run_program(peer: str, program: str | None, scratch: Path, task: dict[str, Any]) -> None:
    """Runs a program of a peer to its end; it dies with this process's group."""
    task_file, log_file = scratch / "program.json", scratch / "program.log"
    task_file.write_text(json.dumps(task), encoding="utf-8")
    with log_file.open("wb") as log:
        code = subprocess.run(
            [str(python_of(peer)), str(program), str(task_file)],
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=foreign_environment(),
            check=False,
        ).returncode
    if code != 0:
        said = log_file.read_text(errors="replace").splitlines()[-LINES_SHOWN:]
        raise HeadraceError(f"{peer} failed with exit code {code}:\n" + "\n".join(said))


BYTEWAX_PEER = Bytewax()
PYFLINK_PEER = PyFlink()
