"""Word count and top editions against plain Python that knows nothing of them."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.reference.word_count import word_count as plain_word_count
from tests.spark.support import SHARED_DATA, run_local

from headrace.errors import HeadraceError
from headrace.workloads.text.runs import WORKLOADS

LINES = 4_000
"""So much of a real file is enough here."""


def ran(name: str, place: Path, given: Path | None, **options: Any) -> list[str]:
    workload = WORKLOADS[name]
    workload.prepare(place, given, seed=1)
    run_local(workload.pipeline(place), place / "checkpoint", slots=2, until="end", **options)
    return workload.verdict(place)


def rows(output: Path) -> list[dict[str, Any]]:
    files = sorted(output.glob("epoch=*/*"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def real(name: str) -> Path:
    path = SHARED_DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not there: real data lies beside the project, not in it")
    return path


def check_words(place: Path, text: str) -> None:
    latest = {row["word"]: row["count"] for row in rows(place / "output" / "counts")}
    assert latest == plain_word_count(text.splitlines())
    fragments = [json.loads(line) for line in (place / "input/records.jsonl").open()]
    assert all(len(f["text"].encode()) <= 140 or " " not in f["text"] for f in fragments)
    assert " ".join(f["text"] for f in fragments).split() == text.split()
    minutes: Counter[tuple[str, int]] = Counter()
    for fragment in fragments:
        for word in re.findall(r"[a-z]+(?:'[a-z]+)?", fragment["text"].lower()):
            minutes[word, fragment["at"] // 60_000_000] += 1
    found = rows(place / "output" / "minutes")
    assert {(r["word"], r["window_start"] // 60_000_000): r["count"] for r in found} == minutes
    sliding = rows(place / "output" / "sliding")
    assert sum(r["count"] for r in sliding) == 3 * sum(r["count"] for r in found)


def test_generated_words_are_counted_in_epochs_of_any_size(tmp_path: Path) -> None:
    told = ran("word-count", tmp_path, None, epoch_records=700)
    assert "as plain Python counts them" in told[0]
    fragments = [json.loads(line)["text"] for line in (tmp_path / "input/records.jsonl").open()]
    check_words(tmp_path, "\n".join(fragments))


def test_the_words_of_a_novel_are_counted(tmp_path: Path) -> None:
    text = "".join(real("moby_dick.txt").open(encoding="utf-8").readlines()[:LINES])
    (tmp_path / "book.txt").write_text(text, encoding="utf-8")
    told = ran("word-count", tmp_path, tmp_path / "book.txt", epoch_records=900)
    check_words(tmp_path, text)
    assert told[1].startswith("The most frequent: the ")


def check_editions(place: Path) -> None:
    windows: dict[int, Counter[str]] = {}
    for line in (place / "input/records.jsonl").open():
        edit = json.loads(line)
        at = int(datetime.fromisoformat(edit["time"]).timestamp()) // 30
        windows.setdefault(at, Counter())[edit["channel"]] += 1
    found: dict[int, list[tuple[int, str]]] = {}
    for row in sorted(rows(place / "output" / "ranked"), key=lambda row: row["rank"]):
        at = row["window_start"] // 30_000_000
        found.setdefault(at, []).append((row["edits"], row["channel"]))
    assert found == {
        at: sorted(((n, c) for c, n in counts.items()), key=lambda p: (-p[0], p[1]))[:3]
        for at, counts in windows.items()
    }


def test_generated_edits_are_ranked(tmp_path: Path) -> None:
    assert "Most often first: #en.wikipedia" in ran("top-editions", tmp_path, None)[1]
    check_editions(tmp_path)


def test_a_day_of_wikipedia_is_ranked(tmp_path: Path) -> None:
    path = real("wikiticker-2015-09-12-sampled.json.gz")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        some = [next(lines) for _ in range(LINES)]
    with gzip.open(tmp_path / "edits.json.gz", "wt", encoding="utf-8") as out:
        out.writelines(some)
    ran("top-editions", tmp_path, tmp_path / "edits.json.gz", epoch_records=1_500)
    check_editions(tmp_path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_byte_order_mark_is_no_text(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    file = tmp_path / ("edits.gz" if pack is gzip.compress else "edits.json")
    file.write_bytes(pack(b'\xef\xbb\xbf{"time": "2015-09-12T00:00:00Z", "channel": "#en"}\n'))
    assert WORKLOADS["top-editions"].prepare(tmp_path, file, 1) == 1


def test_input_that_is_not_there_or_no_edits_is_named(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="there is no file .*nothing.txt"):
        WORKLOADS["word-count"].prepare(tmp_path, tmp_path / "nothing.txt", 1)
    (tmp_path / "edits.jsonl").write_text('{"time": "2015-09-12T00:00:00Z"}\n')
    with pytest.raises(HeadraceError, match="line 1 is no edit"):
        WORKLOADS["top-editions"].prepare(tmp_path, tmp_path / "edits.jsonl", 1)
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(HeadraceError, match="cannot be read as text"):
        WORKLOADS["word-count"].prepare(tmp_path, tmp_path / "binary.txt", 1)
    assert not (tmp_path / "input" / "records.jsonl").exists()


def test_a_wrong_answer_is_not_called_right(tmp_path: Path) -> None:
    ran("top-editions", tmp_path, None)
    file = sorted((tmp_path / "output" / "ranked").glob("epoch=*/*"))[0]
    lines = file.read_text().splitlines(keepends=True)
    file.write_text(lines[0].replace('"rank":1', '"rank":9') + "".join(lines[1:]))
    with pytest.raises(HeadraceError, match="not that of plain Python"):
        WORKLOADS["top-editions"].verdict(tmp_path)


def test_a_file_without_edits_has_no_windows(tmp_path: Path) -> None:
    empty = tmp_path / "edits.jsonl"
    empty.write_text("")
    told = ran("top-editions", tmp_path / "run", empty)
    assert told == ["0 windows of 30 s, ranked as plain Python ranks them."]


def test_edits_may_be_in_any_order_and_without_a_zone(tmp_path: Path) -> None:
    times = ["2015-01-01T00:02:00Z", "2015-01-01T02:00:01+02:00", "2015-01-01 00:00:00.5"]
    lines = [json.dumps({"time": time, "channel": "#en"}) for time in times]
    (tmp_path / "edits.jsonl").write_text("\n\n".join(lines) + "\n\n")
    told = ran("top-editions", tmp_path / "run", tmp_path / "edits.jsonl")
    assert told[0] == "2 windows of 30 s, ranked as plain Python ranks them."
    written = rows(tmp_path / "run" / "output" / "ranked")
    assert [(r["edits"], r["window_start"] // 30_000_000 % 10) for r in written] == [(2, 0), (1, 4)]


def test_words_of_any_script_are_counted(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_text("Дом, naïve дом: L'Île 42 a_b", encoding="utf-8")
    told = ran("word-count", tmp_path / "run", tmp_path / "book.txt")
    assert told[1] == "The most frequent: дом 2, a 1, b 1, l'île 1, naïve 1"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"time": 5, "channel": "#en"}', "argument must be str"),
        ('{"time": "soon", "channel": "#en"}', "Invalid isoformat string: 'soon'"),
        ('{"time": "2015-01-01T00:00:00Z", "channel": null}', "the channel is None, not text"),
    ],
)
def test_what_is_no_edit_is_refused_by_its_line(line: str, reason: str, tmp_path: Path) -> None:
    edits = tmp_path / "edits.jsonl"
    edits.write_text('{"time": "2015-01-01T00:00:00Z", "channel": "#en"}\n' + line)
    with pytest.raises(HeadraceError, match=f"line 2 is no edit, .*{reason}"):
        WORKLOADS["top-editions"].prepare(tmp_path, edits, seed=1)
