"""The Wikipedia editions with the most edits of every 30 seconds.

In two phases, keyed anew in each: edits are counted by edition, then the counts of a window are
ranked. Of equal counts the edition whose name comes first is ranked first.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace import SECOND, Pipeline, same_window, sinks, tumbling
from headrace.model.source import Source

TOP = 3
WINDOW_US = 30 * SECOND
RANKED = "ranked"
START_US = 1_442_016_000 * SECOND
_EDITIONS = ("en", "vi", "de", "fr", "ru", "zh", "es", "it", "ja", "pl")


def generated_edits(seed: int, edits: int = 20_000) -> Iterator[dict[str, Any]]:
    """Edits of some hours, in order of time."""
    dice = random.Random(seed)
    weights = [1 / rank for rank in range(1, len(_EDITIONS) + 1)]
    at = START_US
    for _ in range(edits):
        at += dice.randrange(0, 2 * SECOND)
        edition = dice.choices(_EDITIONS, weights)[0]
        time = datetime.fromtimestamp(at / SECOND, UTC).isoformat()
        yield {"time": time, "channel": f"#{edition}.wikipedia"}


def top_editions(source: Source, output: Path) -> Pipeline:
    """The pipeline; `source` gives edits with a `channel`, by their column `time`."""
    p = Pipeline("top-editions")
    (
        p.read("edits", source)
        .key_by("channel")
        .window(tumbling("30s"))
        .count("edits")
        .named("counted")
        .key_by()
        .window(same_window())
        .top(TOP, by=("edits", "-channel"), numbered=True)
        .named(RANKED)
        .write(sinks.jsonl(output / RANKED))
    )
    return p


def reference(edits: Iterable[dict[str, Any]]) -> dict[tuple[int, int], tuple[str, int]]:
    """The same in plain Python: (window's start, rank) -> edition and its edits."""
    windows: dict[int, Counter[str]] = {}
    for edit in edits:
        at = round(datetime.fromisoformat(edit["time"]).timestamp() * SECOND)
        windows.setdefault(at // WINDOW_US * WINDOW_US, Counter())[edit["channel"]] += 1
    return {
        (start, rank): pair
        for start, counts in windows.items()
        for rank, pair in enumerate(sorted(counts.items(), key=lambda c: (-c[1], c[0]))[:TOP], 1)
    }


def answer(rows: Iterable[dict[str, Any]]) -> dict[tuple[int, int], tuple[str, int]]:
    """What the pipeline wrote, in the form of `reference`."""
    return {(r["window_start"], r["rank"]): (r["channel"], r["edits"]) for r in rows}
