"""Every example of the fluent interface runs, in the harness, and gives what it promises."""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headrace import SECOND, sources
from headrace.testing import CRASH, Harness

ROOT = Path(__file__).parents[3]
WIKIPEDIA = ROOT.parent / "shared" / "data" / "wikiticker-2015-09-12-sampled.json.gz"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_both_word_counts_count_alike():
    for name, counts in (("fluent_word_count", "lines.flat_map.count"), ("word_count", "counts")):
        with Harness(example(name).p) as h:
            h.send("lines", "the mill the wheel", CRASH, "The stream")
            last = {row["word"]: row["count"] for row in h.read(counts)}
        assert last == {"the": 3, "mill": 1, "wheel": 1, "stream": 1}


def editions(records: list[dict[str, Any]], cuts: int) -> list[tuple[int, str, int]]:
    module = example("top_editions")
    with Harness(module.pipeline(sources.memory([], timestamp="time"))) as h:
        step = max(1, -(-len(records) // cuts))
        for start in range(0, len(records), step):
            h.send("edits", *records[start : start + step])
        h.end()
        rows = h.read("hourly.top")
    return sorted((r["window_start"], r["channel"], r["edits"]) for r in rows)


def busiest(records: list[dict[str, Any]]) -> list[tuple[str, int]]:
    hours: dict[str, Counter[str]] = {}
    for record in records:
        hours.setdefault(record["time"][:13], Counter())[record["channel"]] += 1
    return sorted(n for c in hours.values() for _, n in c.most_common(3))


def test_top_editions():
    records = example("top_editions").EDITS
    rows = editions(records, 4)
    assert [(channel, n) for _, channel, n in rows][:3] == [
        ("#de.wikipedia", 1), ("#en.wikipedia", 3), ("#vi.wikipedia", 2),
    ]  # fmt: skip
    assert sorted(n for _, _, n in rows) == busiest(records)


@pytest.mark.skipif(not WIKIPEDIA.exists(), reason="the Wikipedia edits are not on this machine")
def test_top_editions_of_a_real_day():
    with gzip.open(WIKIPEDIA, "rt") as file:
        lines = [json.loads(line) for line in file]
    records = [{"time": line["time"], "channel": line["channel"]} for line in lines][:12_000]
    assert sorted(n for _, _, n in editions(records, 3)) == busiest(records)


def test_click_sessions():
    module = example("click_sessions")
    with Harness(module.p) as h:
        h.send("clicks", *module.CLICKS[:3])
        h.send("clicks", CRASH, *module.CLICKS[3:5])
        h.send("clicks", *module.CLICKS[5:])
        h.end()
        found = [(r["user"], r["clicks"], r["pages"], r["landing"]) for r in h.read("sessions")]
        assert sorted(found) == [("ada", 2, 2, "/"), ("ada", 2, 2, "/"), ("bob", 1, 1, "/wheel")]
        assert [r["page"] for r in h.read("late_clicks")] == ["/late"]


def test_calendar_months():
    module = example("calendar_months")
    found = []
    for cut, crash in ((1, []), (2, [CRASH]), (5, [])):
        with Harness(module.p) as h:
            for start in range(0, 5, cut):
                h.send("readings", *crash, *module.READINGS[start : start + cut])
            h.end()
            last = {(r["customer"], r["window_start"]): r["kwh"] for r in h.read("bills")}
        found.append([(customer, kwh) for (customer, _), kwh in sorted(last.items())])
    assert found[0] == [("forge", 4), ("mill", 7), ("mill", 3), ("mill", 5)]
    assert found[1] == found[2] == found[0]


def test_dedup():
    module = example("dedup")
    with Harness(module.p) as h:
        for payment in module.PAYMENTS:
            h.send("payments", payment)
        last = {row["shop"]: (row["payments"], row["cents"]) for row in h.read("takings")}
    assert last == {"mill": (2, 750), "forge": (1, 900)}


def test_nexmark_q5():
    module = example("nexmark_q5")
    records = module.bids()
    with Harness(module.p) as h:
        for start in range(0, len(records), 150):
            h.send("bids", *records[start : start + 150])
        h.end()
        found = {(r["window_start"], r["auction"], r["num"]) for r in h.read("hot")}
    wanted = set()
    for start in range(-8, 30, 2):
        inside = [b["auction"] for b in records if start <= b["at"] / SECOND < start + 10]
        counts = Counter(inside)
        best = max(counts.values(), default=0)
        wanted |= {(start * SECOND, a, n) for a, n in counts.items() if n == best}
    assert found == wanted
