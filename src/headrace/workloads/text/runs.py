"""What a run of one of these workloads needs: its input as a file, its pipeline, its check.

words = WORKLOADS["word-count"]
words.prepare(place, given=Path("book.txt"), seed=1)
words.pipeline(place).run(checkpoint=...)
for line in words.verdict(place): print(line)
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from headrace import Pipeline, sources
from headrace.errors import HeadraceError
from headrace.sinks.stored.output import read_output
from headrace.workloads.text import editions, words

INPUT, OUTPUT = "input", "output"
Rows = Iterable[dict[str, Any]]


@dataclass(frozen=True)
class TextWorkload:
    """A workload over one file of JSON lines, `input/records.jsonl`."""

    about: str
    generated: Callable[[int], Rows]
    """The records of a seed."""
    of_lines: Callable[[Iterator[str]], Rows]
    """The records of a given file."""
    build: Callable[[sources.Source, Path], Pipeline]
    timestamp: str
    check: Callable[[Rows, Path], list[str]]
    """Compares the output with plain Python; raises HeadraceError, or tells what was found."""

    def prepare(self, place: Path, given: Path | None, seed: int) -> int:
        """Writes the input unless it is there; returns the number of records."""
        file = place / INPUT / "records.jsonl"
        if not file.exists():
            rows = self.generated(seed) if given is None else self.of_lines(lines_of(given))
            file.parent.mkdir(parents=True, exist_ok=True)
            partial = file.with_name("records.partial")
            with partial.open("wb") as out:
                out.writelines(msgspec.json.encode(row) + b"\n" for row in rows)
            partial.replace(file)
        return sum(1 for _ in self._records(place))

    def pipeline(self, place: Path) -> Pipeline:
        """The pipeline over the prepared input."""
        source = sources.jsonl(str(place / INPUT / "records.jsonl"), timestamp=self.timestamp)
        return self.build(source, place / OUTPUT)

    def verdict(self, place: Path) -> list[str]:
        """What was found, after a check against plain Python."""
        return self.check(self._records(place), place / OUTPUT)

    def _records(self, place: Path) -> Iterator[dict[str, Any]]:
        with (place / INPUT / "records.jsonl").open("rb") as lines:
            for line in lines:
                yield msgspec.json.decode(line)


def lines_of(file: Path) -> Iterator[str]:
    """The lines of a text file, which may be packed by gzip."""
    if not file.is_file():
        raise HeadraceError(f"there is no file {file} to read")
    raw = file.read_bytes()
    try:
        text = (gzip.decompress(raw) if file.suffix == ".gz" else raw).decode("utf-8-sig")
    except (UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
        raise HeadraceError(f"{file} cannot be read as text: {error}") from error
    # Only newlines end lines, and a byte order mark is no text, as in `sources.text`.
    yield from text.removesuffix("\n").split("\n") if text else ()


def _edits(lines: Iterator[str]) -> list[dict[str, Any]]:
    """The edits in the order of time. A time without a zone is UTC."""
    found: list[tuple[datetime, str]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            edit = msgspec.json.decode(line)
            time, channel = datetime.fromisoformat(edit["time"]), edit["channel"]
            if not isinstance(channel, str):
                raise TypeError(f"the channel is {channel!r}, not text")
            found.append((time if time.tzinfo else time.replace(tzinfo=UTC), channel))
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            raise HeadraceError(
                f"line {number} is no edit, a JSON object with time and channel: {error}"
            ) from error
    found.sort(key=itemgetter(0))
    return [{"time": time.isoformat(), "channel": channel} for time, channel in found]


def _rows(output: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read_output(str(output)).table().to_pylist()
    return found


def _check_words(records: Rows, output: Path) -> list[str]:
    wanted = words.reference(records)
    found = words.answer({name: _rows(output / name) for name in wanted})
    _compare(found, wanted)
    best = sorted(found[words.COUNTS].items(), key=lambda pair: (-pair[1], pair[0]))[:5]
    return [
        f"{len(wanted[words.COUNTS]):,} words, {len(wanted[words.SLIDING]):,} counts over 30 s and "
        f"{len(wanted[words.MINUTES]):,} of minutes, as plain Python counts them.",
        "The most frequent: " + ", ".join(f"{word} {count:,}" for word, count in best),
    ]


def _check_editions(records: Rows, output: Path) -> list[str]:
    wanted, found = editions.reference(records), editions.answer(_rows(output / editions.RANKED))
    _compare(found, wanted)
    first = [name for (_, rank), (name, _) in found.items() if rank == 1]
    told = [f"{len(first):,} windows of 30 s, ranked as plain Python ranks them."]
    if first:
        best = max(set(first), key=first.count)
        told.append(f"Most often first: {best}, in {first.count(best):,} windows")
    return told


def _compare(found: Any, wanted: Any) -> None:
    if found != wanted:
        raise HeadraceError("the answer is not that of plain Python: this is an error in Headrace")


WORKLOADS = {
    "word-count": TextWorkload(
        "running counts of words, and counts over two kinds of windows",
        lambda seed: words.fragments(words.generated_lines(seed)),
        words.fragments,
        words.word_count,
        "at",
        _check_words,
    ),
    "top-editions": TextWorkload(
        "the busiest Wikipedia editions of every 30 seconds",
        editions.generated_edits,
        _edits,
        editions.top_editions,
        "time",
        _check_editions,
    ),
}
