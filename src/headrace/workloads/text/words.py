"""Word count over fragments of text: running counts, and counts over several windows at once.

A text is cut into fragments of at most 140 bytes, as if somebody sent it in short messages, at
`PER_SECOND` fragments per second. Words are counted as they come (a newer count of a word
replaces the older one), over the last 30 seconds every 10 seconds, and in every minute.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headrace import SECOND, Pipeline, hopping, sinks, tumbling
from headrace.model.source import Source

FRAGMENT_BYTES = 140
PER_SECOND = 50
START_US = 1_700_000_000 * SECOND
WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")  # letters of any script

COUNTS, SLIDING, MINUTES = "counts", "sliding", "minutes"
WINDOW_US = {SLIDING: (30 * SECOND, 10 * SECOND), MINUTES: (60 * SECOND, 60 * SECOND)}
"""Stream -> the length of its windows, and how often one begins."""

_SYLLABLES = [first + second for first in "bdlmn" for second in "aeiou"]


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return WORD.findall(text.lower())


def fragments(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The fragments of a text, with their times. A word longer than a fragment is one by itself."""
    for number, piece in enumerate(_pieces(lines)):
        yield {"at": START_US + number * SECOND // PER_SECOND, "text": piece}


def _pieces(lines: Iterable[str]) -> Iterator[str]:
    held: list[str] = []
    size = 0
    for word in (word for line in lines for word in line.split()):
        added = len(word.encode()) + 1
        if held and size + added > FRAGMENT_BYTES + 1:
            yield " ".join(held)
            held, size = [], 0
        held.append(word)
        size += added
    if held:
        yield " ".join(held)


def generated_lines(seed: int, lines: int = 2_000) -> Iterator[str]:
    """A text of made-up words, some much more frequent than others."""
    dice = random.Random(seed)
    known = ["".join(dice.choices(_SYLLABLES, k=dice.randint(1, 3))) for _ in range(800)]
    weights = [1 / rank for rank in range(1, len(known) + 1)]
    for _ in range(lines):
        yield " ".join(dice.choices(known, weights, k=12)) + "."


def word_count(source: Source, output: Path) -> Pipeline:
    """The pipeline; `source` gives the fragments, by their column `at`."""
    p = Pipeline("word-count")
    words = p.read("fragments", source).flat_map(_worded).named("words").key_by("word")
    words.count("count").named(COUNTS).write(sinks.jsonl(output / COUNTS))
    for name, window in ((SLIDING, hopping("30s", every="10s")), (MINUTES, tumbling("60s"))):
        counted = words.window(window).count("count").named(name)
        counted.write(sinks.jsonl(output / name))
    return p


def _worded(fragment: Any) -> list[dict[str, str]]:
    return [{"word": word} for word in words_of(fragment["text"])]


def reference(rows: Iterable[dict[str, Any]]) -> dict[str, dict[Any, int]]:
    """The same in plain Python: word -> count, and (word, window's start) -> count."""
    found: dict[str, Counter[Any]] = {COUNTS: Counter(), SLIDING: Counter(), MINUTES: Counter()}
    for row in rows:
        for word in words_of(row["text"]):
            found[COUNTS][word] += 1
            for name, (length, every) in WINDOW_US.items():
                start = row["at"] // every * every
                while start > row["at"] - length:
                    found[name][word, start] += 1
                    start -= every
    return {name: dict(counts) for name, counts in found.items()}


def answer(rows_of: dict[str, list[dict[str, Any]]]) -> dict[str, dict[Any, int]]:
    """What the pipeline wrote, in the form of `reference`; the last row of a key counts."""
    return {
        name: {
            (r["word"] if name == COUNTS else (r["word"], r["window_start"])): r["count"]
            for r in rows
        }
        for name, rows in rows_of.items()
    }
