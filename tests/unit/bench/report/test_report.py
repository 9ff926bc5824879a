"""Plots and the page of the report."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.bench.frame.provenance import commit_of, machine_lines
from headrace.bench.frame.result import write_document
from headrace.bench.report.page import EXPECTED, read_documents, render, write_report
from headrace.bench.report.plots import plots_of
from headrace.bench.report.svg import bar_chart, line_chart, number
from headrace.cli.main import cli
from headrace.errors import HeadraceError

SVG = "{http://www.w3.org/2000/svg}"
MACHINE = {"cores": 2, "memory_gb": 8, "processor": "p", "system": "s",
           "load_average_before": [3.5, 2, 1]}  # fmt: skip
ROUNDS = [{"latencies_ms": [100.0, 900.0, 120.0]}]

DOCUMENTS: dict[str, dict[str, Any]] = {
    "keyed-count-large": {
        "benchmark": "keyed-count",
        "systems": {
            "headrace": {"records_per_s": 2e6, "epoch_ms_p50": 500.0},
            "spark-native": {"records_per_s": 1e6, "epoch_ms_p50": 900.0},
        },
        "bars": [{"name": "throughput / a|b", "bar": "at least 1.2", "measured": 2.0,
                  "reached": True}],
        "machine": MACHINE,
        "versions": {"python": "3.11", "pyspark": "4.3"},
    },
    "latency": {
        "benchmark": "latency",
        "sweep": {"headrace": [{"share": 0.5, "p50": 10, "p99": 90},
                               {"share": 0.8, "p50": 30, "p99": 400}]},
    },
    "recovery": {
        "benchmark": "recovery",
        "rounds": {"executor-kill": ROUNDS},
        "systems": {"executor-kill": {"recovery_ms": 3000.0}, "cold": {"recovery_ms": None}},
    },
    "replay": {
        "benchmark": "recovery-by-replay",
        "workload": {"rates": [10, 20]},
        "systems": {"state-management at 10/s, 2 slots": {"recovery_ms": 5.0},
                    "state-management at 20/s, 2 slots": {"recovery_ms": 6.0},
                    "state-management at 20/s, 2 slots, every 5": {"recovery_ms": 9.0}},
    },
    "balance": {"benchmark": "balance", "rounds": {"even": [2.0, 1.0, 0.9]}},
    "scale": {
        "benchmark": "scale",
        "sizes": [
            {"slots": 64, "intervals": n, "driver_ms": 1.0, "driver_cpu_ms": 1.0} for n in (10, 99)
        ],
    },
    "backends": {
        "benchmark": "backends",
        "systems": {"log": {"keys": {"1000": {"writes_per_s": 5.0, "reads_per_s": 6.0}}}},
    },
    "eviction": {
        "benchmark": "eviction",
        "traces": {"zipf": {"hit_rate": {"lru": {"0.05": 0.3, "0.5": 0.8}}}},
    },
    "growth": {
        "benchmark": "growth",
        "epochs": [{"files": 10, "seconds": 0.1}, {"files": 20, "seconds": 0.1}],
        "axes": {
            "slots": {"slope": 0.9, "points": [{"size": 1, "cpu_ms": 1}, {"size": 9, "cpu_ms": 8}]},
            "epochs": {"points": [
                {"epoch": e, "cpu_ms": 1.0, "memory_mb": 9.0, "files": 3, "log_bytes": 9}
                for e in (10, 20)
            ]},
        },
        "bars": [{"name": "x", "bar": "at most 1", "measured": None, "reached": False}],
    },
    "rescale": {
        "benchmark": "rescale",
        "rounds": {"headrace-rescale": [[100.0, 120.0, 90.0]]},
        "systems": {"a": {"epoch_ms_p50": 1.0}, "b": {"epoch_ms_p50": 2.0}},
    },
    "linear-road": {
        "benchmark": "linear-road", "roads": 10, "slowest": [[3000, 1.2], [3001, 1.1]],
        "timed": {"all": {"percentiles": {"p50": 1.0, "p100": 1.2}}},
    },
    "seep-6": {
        "benchmark": "paper", "id": "seep-6",
        "ours": {"epochs": [[n, 10 * n, 1, 1] for n in range(9)], "input_per_s": [10, 10],
                 "slowest_answer_s": [0.5, 0.6]},
    },
    "floe-6b": {
        "benchmark": "paper", "id": "floe-6b", "ours": {"throughput": [5, 9], "slots": [[0, 2]]},
    },
    "clonos-5": {
        "benchmark": "paper", "id": "clonos-5",
        "ours": {"queries": {"q1": {"overhead": -0.01}, "q5": {"overhead": 0.03}}},
    },
}  # fmt: skip


def drawn(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def test_lines_lie_inside_the_plot_and_names_are_escaped() -> None:
    root = drawn(line_chart("a < b", "x & y", "ms", {"<one>": [(1, 10), (1000, 20)]}, log_x=True))
    [line] = root.iter(f"{SVG}polyline")
    pairs = [tuple(map(float, pair.split(","))) for pair in line.attrib["points"].split()]
    assert all(0 <= x <= 760 and 0 <= y <= 380 for x, y in pairs)
    assert pairs[0][0] < pairs[1][0] and pairs[0][1] > pairs[1][1]
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"a < b", "x & y", "<one>", "1,000"} <= set(texts)


@pytest.mark.parametrize("log", [False, True])
def test_what_cannot_be_drawn_is_left_out(log: bool) -> None:
    odd = [(1.0, float("nan")), (2.0, float("inf")), (3.0, 5.0), (4.0, 5.0)]
    root = drawn(line_chart("t", "x", "y", {"s": odd, "none": []}, log_y=log))
    [line] = root.iter(f"{SVG}polyline")
    assert len(line.attrib["points"].split()) == 2
    assert "nothing was measured" in line_chart("t", "x", "y", {"s": [(1.0, float("nan"))]})
    assert "nothing was measured" in bar_chart("t", "ms", {})


def test_bars_are_as_long_as_their_numbers() -> None:
    root = drawn(bar_chart("t", "records", {"one": 100.0, "half": 50.0, "zero": 0.0}))
    widths = [float(rect.attrib["width"]) for rect in root.iter(f"{SVG}rect")]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.01)
    assert widths[2] == 1.0
    logs = drawn(bar_chart("t", "ms", {"small": 1.0, "large": 1000.0}, log=True))
    small, large = (float(rect.attrib["width"]) for rect in logs.iter(f"{SVG}rect"))
    assert 5 < small < large


def test_numbers_are_short() -> None:
    shown = [number(n) for n in (0, 0.0512, 7, 1234, 56_000, 1_850_000, 2e9)]
    assert shown == ["0", "0.0512", "7", "1,234", "56 k", "1.85 M", "2 G"]


@pytest.mark.parametrize("name", list(DOCUMENTS))
def test_every_kind_of_document_gives_plots_that_can_be_read(name: str) -> None:
    plots = plots_of(name, DOCUMENTS[name])
    assert plots
    for plot in plots:
        assert plot.name.startswith(name) and " " not in plot.name
        assert drawn(plot.svg).attrib["aria-label"] == plot.title
        assert "nothing was measured" not in plot.svg


def test_the_report_names_what_was_not_run_and_which_bars_were_missed(tmp_path: Path) -> None:
    for name, document in DOCUMENTS.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    (tmp_path / "notes.json").write_text("[1, 2]")
    page = tmp_path / "bench" / "REPORT.md"
    documents, plots = write_report(tmp_path, page)
    assert documents == len(DOCUMENTS)
    text = page.read_text()
    missing = next(line for line in text.splitlines() if line.startswith("- Not run:"))
    assert "memory" in missing and ", growth," not in missing
    assert "growth with state" in missing and "growth with slots" not in missing
    assert "| throughput / a\\|b | 2 | at least 1.2 | reached |" in text
    assert "| growth | x | not measured | at most 1 | **missed** |" in text
    assert "2 cores: 3.5 to 3.5" in text and "pyspark 4.3" in text
    linked = [line.split("](")[1].rstrip(")") for line in text.splitlines() if "![" in line]
    assert len(linked) == plots == len(set(linked))
    assert all((page.parent / name).exists() for name in linked)


def test_documents_are_kept_until_their_benchmark_runs_again(tmp_path: Path) -> None:
    out, keep, page = tmp_path / "out", tmp_path / "kept", tmp_path / "REPORT.md"
    write_document(DOCUMENTS["scale"] | {"commit": "of-before"}, out / "scale.json")
    row = {"benchmark": "paper", "id": "seep-13", "ours": {}, "commit": "of-before"}
    write_document(row, out / "papers" / "seep-13.json")
    assert write_report(out, page, keep)[0] == 2
    (out / "scale.json").unlink()
    write_document(row | {"commit": "of-now", "day": "2026-01-02"}, out / "papers" / "seep-13.json")
    assert write_report(out, page, keep)[0] == 2
    text = page.read_text()
    assert "| seep-13 | 2026-01-02 | of-now |" in text
    assert f"| scale | {datetime.now(UTC).date()} | of-before |" in text
    assert write_report(keep, page, keep)[0] == 2


def test_an_empty_directory_gives_a_page_that_says_so(tmp_path: Path) -> None:
    text, plots = render(read_documents(tmp_path))
    assert not plots and "No benchmark with a bar was run." in text
    assert all(name in text for name in EXPECTED)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "scale.json").write_text("{")
    with pytest.raises(HeadraceError, match=r"scale\.json is no JSON document"):
        read_documents(tmp_path)


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    (tmp_path / "scale.json").write_text(json.dumps(DOCUMENTS["scale"]))
    page = tmp_path / "REPORT.md"
    ran = CliRunner().invoke(cli, ["bench", "report", str(tmp_path), "--output", str(page)])
    assert ran.exit_code == 0, ran.output
    assert "1 documents, 2 plots" in ran.output and page.exists()


def test_what_several_runs_have_in_common_is_said_once(tmp_path: Path) -> None:
    other = {**MACHINE, "load_average_before": [0.5, 0, 0]}
    lines = machine_lines([{"machine": MACHINE, "versions": {"python": "3.11"}},
                           {"machine": other, "versions": {"python": "3.12"}}])  # fmt: skip
    assert "0.5 to 3.5" in lines[1]
    assert "python 3.11 and 3.12" in lines[2]
    assert commit_of(tmp_path) == ""
