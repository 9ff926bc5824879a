"""The keyed count in Bytewax under an open load: `python bytewax_open.py CONFIG.json`.

Run by Bytewax's own interpreter, set up as in `bytewax_program`. It watches a directory and speaks
as `bench.latency.members` do: for each line on standard input, a number of records, it waits until
so many have visible results, and answers with the steps since, as `[step, records, when visible]`.

A file is one batch, and each key in it gives one row. A step is one call of the sink, which writes
a Parquet file; a file of the input is visible when as many of its rows are written as it has keys.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

ANSWER = "ANSWER "
LOOK_S = 0.005
PATIENCE_S = 600.0


class Board:
    """Which files have come in, and which of them are visible."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.steps: list[tuple[int, int, float]] = []
        self._left: dict[int, int] = {}
        self._records: dict[int, int] = {}
        self._done = self._told = 0

    def came(self, file: int, records: int, keys: int) -> None:
        """A file was read."""
        with self.changed:
            self._left[file], self._records[file] = keys, records

    def wrote(self, step: int, files: Iterable[int], when: float) -> None:
        """Rows became visible, each of one of these files."""
        with self.changed:
            records = 0
            for file in files:
                self._left[file] -= 1
                if not self._left[file]:
                    del self._left[file]
                    records += self._records.pop(file)
            self._done += records
            self.steps.append((step, records, when))
            self.changed.notify_all()

    def settle(self, records: int) -> list[tuple[int, int, float]]:
        """Waits for so many records in all; the new steps."""
        with self.changed:
            if not self.changed.wait_for(lambda: self._done >= records, PATIENCE_S):
                raise TimeoutError(f"waited {PATIENCE_S:g} s in vain for {records:,} records")
            found = self.steps[self._told :]
            self._told = len(self.steps)
            return found


def main(config_file: str) -> None:
    """Runs the dataflow and answers until standard input ends."""
    from bytewax.testing import run_main

    config = json.loads(Path(config_file).read_text(encoding="utf-8"))
    board = Board()
    threading.Thread(target=answer, args=(board,), daemon=True).start()
    run_main(flow_of(Path(config["home"]), config["adds_values"], board))


def answer(board: Board) -> None:
    """Answers the benchmark; the process ends with its questions."""
    print(f"{ANSWER}[]", flush=True)  # it runs
    try:
        for line in sys.stdin:
            print(ANSWER + json.dumps(board.settle(int(line))), flush=True)
    finally:
        # The dataflow watches for ever, in a thread that nobody can stop.
        os._exit(0)


def flow_of(home: Path, adds_values: bool, board: Board) -> Any:
    """The dataflow: values carry the number of their file, and so do rows."""
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.operators import StatefulBatchLogic

    class Count(StatefulBatchLogic):
        """Counts values, or adds up each by a line of Python; one number per key and batch."""

        def __init__(self, state: int | None) -> None:
            self.count = state or 0

        def on_batch(self, values: list[Any]) -> tuple[Iterable[Any], bool]:
            if adds_values:
                count = self.count
                for _, value in values:
                    count += value
                self.count = count
            else:
                self.count += len(values)
            files = {file for file, _ in values}
            # If two files met in one batch, each still gets its row.
            return [(self.count, file) for file in sorted(files)], StatefulBatchLogic.RETAIN

        def snapshot(self) -> int:
            return self.count

    flow = Dataflow("open-load")
    records = op.input("files", flow, files_source(home / "in", adds_values, board))
    counts = op.stateful_batch("count", records, Count)
    op.output("rows", counts, rows_sink(home / "out", board))
    return flow


def files_source(directory: Path, adds_values: bool, board: Board) -> Any:
    """New files of a directory in the order of their names, each as one batch."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition

    class Part(StatefulSourcePartition):
        def __init__(self) -> None:
            self._next = 0
            self._wait = False

        def next_batch(self) -> list[tuple[str, Any]]:
            # Files are numbered without a gap, so none need be listed.
            path = directory / f"{self._next:09d}.parquet"
            self._wait = not path.exists()
            if self._wait:
                return []
            number, self._next = self._next, self._next + 1
            table = pq.read_table(path, columns=["key", "value"])
            board.came(number, len(table), pc.count_distinct(table["key"]).as_py())
            keys = table["key"].to_pylist()
            values = table["value"].to_pylist() if adds_values else [None] * len(keys)
            return [(key, (number, value)) for key, value in zip(keys, values)]

        def next_awake(self) -> datetime | None:
            later = timedelta(seconds=LOOK_S)
            return datetime.now(timezone.utc) + later if self._wait else None  # noqa: UP017

        def snapshot(self) -> None:
            return None

    class Files(FixedPartitionedSource):
        def list_parts(self) -> list[str]:
            return ["files"]

        def build_part(self, step_id: str, for_part: str, resume_state: Any) -> Part:
            return Part()

    return Files()


def rows_sink(out: Path, board: Board) -> Any:
    """A Parquet file for each batch of rows, in a directory of its own that appears at once."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from bytewax.outputs import DynamicSink, StatelessSinkPartition

    class Part(StatelessSinkPartition):
        def __init__(self) -> None:
            self._step = 0

        def write_batch(self, items: list[Any]) -> None:
            made = out.parent / "made"
            made.mkdir()
            keys, counts = [key for key, _ in items], [count for _, (count, _) in items]
            pq.write_table(pa.table({"key": keys, "count": counts}), made / "rows.parquet")
            made.rename(out / f"{self._step:09d}")
            board.wrote(self._step, [file for _, (_, file) in items], time.time())
            self._step += 1

    class Rows(DynamicSink):
        def build(self, step_id: str, worker_index: int, worker_count: int) -> Part:
            return Part()

    return Rows()


if __name__ == "__main__":
    main(sys.argv[1])
