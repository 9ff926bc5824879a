"""Zeitgeist over edits: the findings are those of plain Python, however the input is cut."""

import gzip
import json
from pathlib import Path
from random import Random

import pytest
from tests.unit.workloads.linear_road.support import SHARED_DATA

from headrace import sources
from headrace.demo import edits
from headrace.demo.model import STEADY
from headrace.demo.outcome import DemoOutcome
from headrace.demo.reference import Finding, reference, region_counts
from headrace.demo.zeitgeist import zeitgeist
from headrace.errors import HeadraceError
from headrace.testing import Harness

REAL = SHARED_DATA / "wikiticker-2015-09-12-sampled.json.gz"


def as_lines() -> list[str]:
    """Eight hours of two editions; one falls silent, the other is suddenly busy."""
    dice, lines = Random(4), []
    for second in range(0, 8 * 3600, 15):
        at = f"2015-09-12T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.5Z"
        busy = 8 if 4 <= second // 3600 < 5 else 1
        quiet = 5 <= second // 3600 < 6
        for edition in ["#de.wikipedia"] * (not quiet) + ["#vi.wikipedia"] * busy:
            space = dice.choice(["Main", "Talk"])
            lines.append(json.dumps({"time": at, "channel": edition, "namespace": space}))
    return lines


def found_by(place: Path, epoch_records: int) -> tuple[list[Finding], DemoOutcome]:
    records = list(edits.read_edits(place))
    source = sources.memory([], timestamp="ts", lateness=edits.LATENESS)
    with Harness(zeitgeist(source, rhythm=STEADY), epoch_records=epoch_records, twice=False) as h:
        h.send("queries", *records)
        h.end()
        rows = [*h.read("spikes"), *h.read("dips")]
        regions = {(r["region"], r["bucket"]): r["count"] for r in h.read("regions")}
    assert regions == region_counts(records, lateness=edits.LATENESS, rhythm=STEADY)
    return sorted(map(Finding.of, rows)), DemoOutcome(rows, [], 0)


@pytest.mark.parametrize("epoch_records", [700, 100_000])
def test_spikes_and_dips_of_editions_are_those_of_plain_python(tmp_path, epoch_records):
    given = tmp_path / "edits.json.gz"
    given.write_bytes(gzip.compress("\n".join(as_lines()).encode()))
    assert edits.write_edits(given, tmp_path / "in") == len(as_lines())
    found, outcome = found_by(tmp_path / "in", epoch_records)
    records = list(edits.read_edits(tmp_path / "in"))
    assert found == reference(records, lateness=edits.LATENESS, rhythm=STEADY)
    assert {(f.kind, f.query) for f in found} >= {
        ("spike", "vi.wikipedia"), ("dip", "de.wikipedia")
    }  # fmt: skip
    told = edits.closing_lines(records, outcome, tmp_path)
    assert "as plain Python finds them" in told[1]
    with pytest.raises(HeadraceError, match="not that of plain Python"):
        edits.closing_lines(records, DemoOutcome(outcome.findings[1:], [], 0), tmp_path)


@pytest.mark.skipif(not REAL.exists(), reason=f"needs the real data in {SHARED_DATA}")
def test_a_day_of_real_edits(tmp_path):
    assert edits.write_edits(REAL, tmp_path) == 39_244
    found, _ = found_by(tmp_path, 4_000)
    assert found == reference(edits.read_edits(tmp_path), lateness=edits.LATENESS, rhythm=STEADY)
    assert {finding.kind for finding in found} == {"spike", "dip"}


def test_lines_that_are_no_edits_are_refused_by_number(tmp_path):
    for line in ("nothing", "[]", '{"time": "soon", "channel": "#en"}', '{"time": 3}'):
        (tmp_path / "edits").write_text(as_lines()[0] + "\n" + line)
        with pytest.raises(HeadraceError, match="line 2 is no edit"):
            edits.write_edits(tmp_path / "edits", tmp_path / "in")
    (tmp_path / "edits").write_text("")
    with pytest.raises(HeadraceError, match="has no edits"):
        edits.write_edits(tmp_path / "edits", tmp_path / "in")
