"""Linear Road input in files that can be read fast: one batch of Arrow columns per second.

    DIR/index.json                     what it is, and how many lines each second has
    DIR/minute-0000.arrow              the lines of a minute: a batch per second
    DIR/history.parquet                the expenditure of past days

The index is written last, so a directory with an index is complete.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from headrace.errors import SourceError
from headrace.model.values.arrow import one_batch
from headrace.workloads.linear_road.columns import (
    BALANCE,
    EXPENDITURE,
    INPUT,
    LINE,
    REPORT,
    SEGMENTS,
    TRAVEL_TIME,
)
from headrace.workloads.linear_road.traffic import PastTolls, Traffic, TrafficSimulation

INDEX = "index.json"
HISTORY = "history.parquet"
MINUTE_S = 60
SECONDS_MAX = 7 * 24 * 3600
"""No input is longer: the benchmark has three hours. A larger time counts from somewhere else."""
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class Index(msgspec.Struct, frozen=True):
    """What a directory of input contains."""

    roads: int
    about: str
    """How it was made."""
    lines: list[int]
    """How many lines each second has."""

    @property
    def seconds(self) -> int:
        """How many seconds it lasts."""
        return len(self.lines)

    @property
    def digest(self) -> str:
        """Changes when the input is another."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()[:16]


def write_traffic(directory: Path, traffic: Traffic) -> Index:
    """Simulates traffic into a directory, unless the directory already has exactly this."""
    about = msgspec.json.encode(traffic).decode()
    if (directory / INDEX).exists():
        index = read_index(directory)
        if index.about == about:
            return index
        raise SourceError(f"{directory} has other input, {index.about}: choose another directory")
    simulation = TrafficSimulation(traffic)
    lines = _write_seconds(directory, simulation.seconds())
    return _finish(directory, Index(traffic.roads, about, lines), simulation.history)


def write_text(directory: Path, text: Path, history: Path | None = None) -> Index:
    """Turns a text file of 15 integers per line into such a directory.

    Requests for travel times (type 4) are left out: these are not part of the rules here.
    """
    table = _read_lines(text)
    digest = hashlib.sha256(text.read_bytes()).hexdigest()[:16]
    about = f"{text.name} {digest}"
    if (directory / INDEX).exists():
        index = read_index(directory)
        if index.about == about:
            return index
        raise SourceError(f"{directory} has other input, {index.about}: choose another directory")
    times = table["time"].to_numpy()
    bounds = np.searchsorted(times, np.arange(int(times.max(initial=0)) + 2)).tolist()
    batches = (one_batch(table.slice(a, b - a)) for a, b in pairwise(bounds))
    # A request may name a road that nobody drives on: that is no work, and no part of L.
    driven = table["xway"].filter(pc.equal(table["type"], REPORT))
    roads = 1 + int(pc.max(driven).as_py() or 0)
    lines = _write_seconds(directory, batches)
    return _finish(directory, Index(roads, about, lines), _read_history(history))


def read_index(directory: Path) -> Index:
    """The index of a directory."""
    try:
        return msgspec.json.decode((directory / INDEX).read_bytes(), type=Index)
    except FileNotFoundError:
        raise SourceError(
            f"{directory} has no {INDEX}: it is not Linear Road input, or was not finished"
        ) from None
    except msgspec.DecodeError as error:
        raise SourceError(f"{directory / INDEX} is damaged: {error}") from None


def read_history(directory: Path) -> pa.Table:
    """The expenditure of past days: vid, day, xway, toll."""
    return pq.read_table(directory / HISTORY)


def read_seconds(directory: Path, start: int, end: int) -> Iterator[pa.RecordBatch]:
    """The lines of the seconds from `start` up to `end`."""
    for minute in range(start // MINUTE_S, -(-end // MINUTE_S)):
        path = _minute_file(directory, minute)
        try:
            with pa.memory_map(str(path)) as mapped, pa.ipc.open_file(mapped) as file:
                first = minute * MINUTE_S
                for second in range(max(start, first), min(end, first + MINUTE_S)):
                    yield file.get_batch(second - first)
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"{path} cannot be read: {error}") from error


def _minute_file(directory: Path, minute: int) -> Path:
    return directory / f"minute-{minute:04d}.arrow"


def _write_seconds(directory: Path, seconds: Iterable[pa.RecordBatch]) -> list[int]:
    directory.mkdir(parents=True, exist_ok=True)
    lines: list[int] = []
    writer: pa.RecordBatchFileWriter | None = None
    for second, batch in enumerate(seconds):
        if second % MINUTE_S == 0:
            if writer is not None:
                writer.close()
            path = _minute_file(directory, second // MINUTE_S)
            writer = pa.ipc.new_file(str(path), INPUT, options=_OPTIONS)
        if writer is not None:
            writer.write_batch(batch)
        lines.append(batch.num_rows)
    if writer is not None:
        writer.close()
    return lines


def _finish(directory: Path, index: Index, history: PastTolls) -> Index:
    pq.write_table(history.table(), directory / HISTORY)
    half = directory / f"{INDEX}.half"
    half.write_bytes(msgspec.json.encode(index))
    half.replace(directory / INDEX)
    return index


def _read_lines(text: Path) -> pa.Table:
    try:
        try:
            table = _parsed(text)
        except pa.ArrowInvalid:
            table = _parsed(text, use_threads=False)  # this one says in which row
        table = table.select(INPUT.names)
        _check(table, text)
        known = pc.is_in(table["type"], pa.array([REPORT, BALANCE, EXPENDITURE]))
        return table.filter(known).cast(INPUT)
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{text} is not Linear Road input: {_reason(error, text)}") from error


def _reason(error: Exception, text: Path) -> str:
    """What Arrow says, with the number and the name of the line and column in place of its own."""
    row, column = (re.search(f"{what} #([0-9]+): ", str(error)) for what in ("Row", "column"))
    if row is None:
        return str(error)
    name = "" if column is None else f"{LINE[int(column[1])]}: "
    return f"line {_line_number(text, int(row[1]) - 1)}: {name}{str(error)[row.end() :]}"


def _parsed(text: Path, *, use_threads: bool = True) -> pa.Table:
    types = {name: pa.int64() for name in LINE}
    return arrow_csv.read_csv(
        text,
        read_options=arrow_csv.ReadOptions(column_names=list(LINE), use_threads=use_threads),
        convert_options=arrow_csv.ConvertOptions(column_types=types),
    )


def _check(table: pa.Table, text: Path) -> None:
    """Refuses lines that cannot be, by their number in the file."""
    columns = {name: table[name].to_numpy() for name in table.schema.names}
    wrong = first_wrong(columns) or _first_too_large(columns) or _first_earlier(columns["time"])
    if wrong is not None:
        raise SourceError(f"{text}: line {_line_number(text, wrong[0])}: {wrong[1]}")


def _first_earlier(times: np.ndarray[Any, Any]) -> tuple[int, str] | None:
    """The first line that is before the one above it."""
    earlier = np.diff(times) < 0
    if not earlier.any():
        return None
    row = int(np.argmax(earlier)) + 1
    return row, f"time is {times[row]} after {times[row - 1]}: lines must be in the order of time"


def _first_too_large(columns: dict[str, np.ndarray[Any, Any]]) -> tuple[int, str] | None:
    """The first line with a number that no input has, and what is wrong with it."""
    late = columns["time"] >= SECONDS_MAX
    if late.any():
        row = int(np.argmax(late))
        days = SECONDS_MAX // (24 * 3600)
        return row, (
            f"time is {columns['time'][row]}: times are seconds since the input began, and no "
            f"input is longer than {days} days; take the first time from all"
        )
    for field in INPUT:
        limits = np.iinfo(field.type.to_pandas_dtype())
        cells = columns[field.name]
        bad = (cells < limits.min) | (cells > limits.max)
        if bad.any():
            row = int(np.argmax(bad))
            return row, f"{field.name} is {cells[row]}, which is not {limits.min} to {limits.max}"
    return None


def _line_number(text: Path, row: int) -> int:
    """The number in its file of a line that was read; empty ones were not."""
    with text.open("rb") as lines:
        filled = (number for number, line in enumerate(lines, 1) if line.strip())
        return next(islice(filled, row, None), row + 1)


def first_wrong(columns: dict[str, np.ndarray[Any, Any]]) -> tuple[int, str] | None:
    """The first line that cannot be, and what is wrong with it."""
    for name, cells in columns.items():
        if cells.dtype.kind not in "fO":
            continue
        empty = np.array([cell is None or cell != cell for cell in cells.tolist()])
        if empty.any():
            return int(np.argmax(empty)), f"{name} is empty"
    types = (REPORT, BALANCE, EXPENDITURE, TRAVEL_TIME)
    unknown = ~np.isin(columns["type"], types)
    if unknown.any():
        row = int(np.argmax(unknown))
        return row, f"type is {columns['type'][row]}, not one of {', '.join(map(str, types))}"
    report = columns["type"] == REPORT
    limits = {"seg": SEGMENTS - 1, "lane": 4, "dir": 1, "xway": None, "speed": None, "pos": None}
    for name, most in limits.items():
        cells = columns[name]
        bad = report & ((cells < 0) | (cells > most if most is not None else False))
        if bad.any():
            row = int(np.argmax(bad))
            return row, f"{name} is {cells[row]}" + ("" if most is None else f", not 0 to {most}")
    for name in ("time", "vid"):
        if (columns[name] < 0).any():
            row = int(np.argmax(columns[name] < 0))
            return row, f"{name} is {columns[name][row]}"
    return None


def _read_history(path: Path | None) -> PastTolls:
    """The lines vid,day,xway,toll of a text file."""
    history = PastTolls()
    if path is None:
        return history
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        try:
            vid, day, xway, toll = np.array(line.split(","), np.int64).tolist()
        except (ValueError, OverflowError):
            raise SourceError(f"{path}: line {number} is not vid,day,xway,toll") from None
        history.tolls[vid, day, xway] = toll
    return history
