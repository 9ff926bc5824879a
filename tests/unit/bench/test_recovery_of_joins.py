"""The joins whose recovery is measured give each row once, and a row tells of its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.engine.support import driver_of, run

from headrace.bench.recovery import join_job
from headrace.bench.recovery.job import DIRECTORY
from headrace.bench.recovery.joins import EventFeed, RowPoller

FILES = 4


@pytest.mark.parametrize(("query", "rows"), [("q3", 5), ("q8", 10)])
def test_every_file_is_visible_by_its_own_rows(
    query: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIRECTORY, str(tmp_path))
    monkeypatch.setenv(join_job.QUERY, query)
    feed = EventFeed(query, tmp_path / "in", 1.0, 20)
    (tmp_path / "in").mkdir()
    driver = driver_of(join_job.pipeline().freeze(), until=None)
    watch = RowPoller(tmp_path / "out")
    for number in range(1, FILES + 1):
        lines = [json.dumps(row) for row in feed.rows(number, at=0)]
        (tmp_path / "in" / f"{number:06d}.jsonl").write_text("\n".join(lines) + "\n")
        feed.counts.update(feed.expected(number))
        run(driver)
        watch.look()
        assert max(watch.visible) == number, "without waiting for the next file"
    assert watch.counts == dict(feed.counts) and len(watch.counts) == FILES * rows
