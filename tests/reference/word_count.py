"""Word count over lines that are all there at once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")


def words_of(line: str) -> list[str]:
    """The words of a line, in lower case."""
    return WORD.findall(line.lower())


def word_count(lines: Iterable[str]) -> dict[str, int]:
    """Word -> how often it occurs."""
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(words_of(line))
    return dict(counts)
