"""Real data on Spark, against plain Python: a novel, a day of Wikipedia, an access log."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.reference.word_count import word_count as plain_word_count
from tests.spark.pipelines import word_count
from tests.spark.support import SHARED_DATA, bag, rows

from headrace import HOUR, Computation, Context, Pipeline, Record, Timer, sinks, sources, state, to

pytestmark = pytest.mark.spark


def real(name: str) -> Path:
    path = SHARED_DATA / name
    if not path.exists():
        pytest.skip(f"{path} is not there: real data lies beside the project, not in it")
    return path


def test_the_words_of_moby_dick_are_counted_as_plain_python_counts_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    book = real("moby_dick.txt")
    pipeline = word_count(sources.text(str(book)), tmp_path / "out")
    pipeline.run(checkpoint=str(tmp_path / "checkpoint"), spark=spark, slots=2, epoch_records=8000)
    told = {row["word"]: row["count"] for row in rows(tmp_path / "out")}
    with book.open(encoding="utf-8", newline="\n") as lines:
        expected = plain_word_count(line.rstrip("\n") for line in lines)
    assert told == expected
    assert told["whale"] > 1000


class Hourly(Computation, ordered=True):
    """Edits of a channel by hour, and the page edited most: ties go to the first name."""

    pages: dict[str, int] = state()

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        page = record.value["page"]
        self.pages[page] = self.pages.get(page, 0) + 1
        end = (record.timestamp // HOUR + 1) * HOUR
        ctx.set_timer(at=end)

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        page = min(self.pages, key=lambda name: (-self.pages[name], name))
        hour, edits = timer.timestamp // HOUR - 1, sum(self.pages.values())
        row = {"channel": ctx.key, "hour": hour, "edits": edits}
        ctx.produce({**row, "top": page, "times": self.pages[page]}, timestamp=timer.timestamp - 1)
        self.pages.clear()


def test_the_most_edited_pages_of_each_hour_are_those_of_plain_python(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = real("wikiticker-2015-09-12-sampled.json.gz")
    p = Pipeline("edits")
    p.read("edits", sources.jsonl(str(path), timestamp="time"))
    p.compute(Hourly, inputs={"edits": "channel"}, outputs="hours")
    p.stream("hours").write(sinks.jsonl(tmp_path / "out"))
    summary = p.run(checkpoint=str(tmp_path / "checkpoint"), spark=spark, slots=3)
    hours: dict[tuple[str, int], Counter[str]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        edits = [json.loads(line) for line in lines]
    for edit in edits:
        hour = int(datetime.fromisoformat(edit["time"]).timestamp()) // 3600
        hours.setdefault((edit["channel"], hour), Counter())[edit["page"]] += 1
    expected = []
    for (channel, hour), pages in hours.items():
        top = min(pages, key=lambda name: (-pages[name], name))
        row = {"channel": channel, "hour": hour, "edits": pages.total()}
        expected.append({**row, "top": top, "times": pages[top]})
    assert bag(rows(tmp_path / "out")) == bag(expected)
    assert (summary.records, summary.late) == (len(edits), 0)


ACCESS = re.compile(r'(\S+) \S+ \S+ \[([^\]]+)\] "(\S+) (\S+)[^"]*" (\d{3}) (\d+|-)')


def parse(text: str) -> dict[str, Any]:
    """One line of the combined log format; ValueError where it is none."""
    found = ACCESS.match(text)
    if found is None:
        raise ValueError("not a line of an access log")
    host, at, method, path, status, size = found.groups()
    return {
        "host": host, "method": method, "path": path, "status": int(status),
        "bytes": 0 if size == "-" else int(size),
        "ts": int(datetime.strptime(at, "%d/%b/%Y:%H:%M:%S %z").timestamp()) * 1_000_000,
    }  # fmt: skip


class Parse(Computation):
    """Lines to requests; what is no request raises."""

    def process_record(self, record: Record[str], ctx: Context) -> None:
        request = parse(record.value)
        ctx.produce(request, timestamp=request["ts"])


class Traffic(Computation):
    """What a host asked for in all, told anew with every request."""

    requests: int = state(0)
    sent: int = state(0)

    def process_record(self, record: Record[dict[str, Any]], ctx: Context) -> None:
        self.requests += 1
        self.sent += record.value["bytes"]
        ctx.produce({"host": ctx.key, "requests": self.requests, "sent": self.sent})


def test_the_traffic_of_an_access_log_is_that_of_plain_python_and_odd_lines_go_aside(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = real("apache_logs.txt")
    log = tmp_path / "access.log"
    log.write_text(path.read_text(encoding="utf-8") + "- - this is no request\n", encoding="utf-8")
    p = Pipeline("traffic")
    p.read("lines", sources.text(str(log)))
    p.compute(Parse, inputs={"lines": None}, outputs="requests", errors=to("odd"))
    p.compute(Traffic, inputs={"requests": "host"}, outputs="traffic")
    p.stream("traffic").write(sinks.jsonl(tmp_path / "out"))
    p.stream("odd").write(sinks.jsonl(tmp_path / "odd"))
    summary = p.run(
        checkpoint=str(tmp_path / "checkpoint"), spark=spark, slots=2, epoch_records=3000
    )
    requests: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    odd = []
    for text in log.read_text(encoding="utf-8").splitlines():
        try:
            request = parse(text)
        except ValueError:
            odd.append(text)
            continue
        requests[request["host"]] += 1
        sent[request["host"]] += request["bytes"]
    last = {row["host"]: row for row in rows(tmp_path / "out")}
    assert {host: (row["requests"], row["sent"]) for host, row in last.items()} == {
        host: (requests[host], sent[host]) for host in requests
    }
    assert Counter(letter["value"] for letter in rows(tmp_path / "odd")) == Counter(odd)
    assert summary.dead == len(odd) >= 1
