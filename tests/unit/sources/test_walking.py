"""A directory that cannot be listed is an error, or an outage; what has vanished is neither."""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.engine.support import driver_of, follower_of, run

from headrace import sources
from headrace.engine.leading.loop import run_loop
from headrace.errors import SourceError
from headrace.model.source import Workspace
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.plan.decisions.transient import is_outage
from headrace.sinks import memory as memory_sink
from headrace.sources.files.directories import files_below, files_like
from headrace.store.disk import DiskStore


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("a.txt", "sub/b.txt"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")
    return tmp_path / "in"


def failing(
    monkeypatch: pytest.MonkeyPatch, code: int, times: int = 10**9, after: int = 0
) -> list[str]:
    """Listing `sub` fails so many times, after it has succeeded so often; gives the failures."""
    real: Callable[..., Any] = os.scandir
    asked: list[str] = []

    def scandir(path: Any) -> Any:
        if str(path).endswith("/sub"):
            asked.append(str(path))
            if after < len(asked) <= after + times:
                raise OSError(code, os.strerror(code), path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    return asked


def pipeline_of(paths: object, tmp_path: Path, **options: Any) -> tuple[Topology, DiskStore]:
    pipeline = PipelineBuilder("walk")
    pipeline.read("in", sources.text(paths, **options)).write(memory_sink())  # type: ignore[arg-type]
    return pipeline.freeze(), DiskStore(tmp_path / "state")


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("pattern", ["", "/**/*.txt", "/*/*.txt"])
def test_an_error_while_listing_is_an_error_not_an_absence(
    data: Path, tmp_path: Path, pattern: str, ordered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology, store = pipeline_of(f"{data}{pattern}", tmp_path, ordered_by_name=ordered)
    failing(monkeypatch, errno.EIO)
    with pytest.raises(OSError, match="cannot be listed, so its files are not known") as caught:
        driver_of(topology, store)
    assert is_outage(caught.value)


def test_a_directory_closed_to_this_user_is_named(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, errno.EACCES)
    with pytest.raises(SourceError, match=r"sub cannot be listed.*permission denied"):
        sources.text(data).prepare(Workspace(DiskStore(tmp_path / "w")))


def test_a_directory_that_vanished_since_it_was_seen_is_not_there(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, errno.ENOENT)
    source = sources.text(data)
    source.prepare(Workspace(DiskStore(tmp_path / "w")))
    assert source.splits() == ["a.txt"]


def test_a_file_that_vanished_since_it_was_listed_is_not_there(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = sources.text(data, watch=True)
    source.prepare(Workspace(DiskStore(tmp_path / "w")))
    named = source.files.named  # type: ignore[attr-defined]

    def and_gone(found: Any) -> Any:
        (data / "a.txt").unlink(missing_ok=True)
        return named(found)

    monkeypatch.setattr(source.files, "named", and_gone)  # type: ignore[attr-defined]
    assert source.splits() == ["sub/b.txt"]


def test_a_run_waits_for_a_directory_that_cannot_be_listed_for_a_while(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology, store = pipeline_of(data, tmp_path, watch=True)
    asked = failing(monkeypatch, errno.EIO, times=3, after=3)
    summary = run_loop(follower_of(topology, store, until="caught_up", give_up_s=60.0))
    assert summary.records == 2 and summary.reason == "caught_up"
    assert len(asked) > 6


def test_a_run_that_met_an_error_reads_everything_when_started_again(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology, store = pipeline_of(data, tmp_path)
    with monkeypatch.context() as broken:
        failing(broken, errno.EIO)
        with pytest.raises(OSError):
            driver_of(topology, store)
    driver = driver_of(topology, store)
    run(driver)
    assert driver.summary("end").records == 2


PARTS = st.sampled_from(["a", "b.txt", "c.csv", ".d", "_e", "f"])
PATTERNS = st.lists(
    st.sampled_from(["*", "**", "a", "f", "*.txt", "?", "[ab]*", "c.csv"]), min_size=1, max_size=4
)


@settings(max_examples=60, deadline=None)
@given(
    paths=st.lists(st.lists(PARTS, min_size=1, max_size=4), max_size=8, unique_by=tuple),
    pattern=PATTERNS,
)
def test_patterns_mean_what_they_mean_to_glob(
    tmp_path_factory: pytest.TempPathFactory, paths: list[list[str]], pattern: list[str]
) -> None:
    root = tmp_path_factory.mktemp("glob")
    for parts in paths:
        path = root.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            continue
    expected = {
        path
        for path in glob.glob(os.path.join(root, *pattern), recursive=True)
        if os.path.isfile(path)
        and not any(part[0] in "._" for part in Path(path).relative_to(root).parts)
    }
    assert set(files_like(str(root), pattern)) == expected
    below = {str(path) for path in root.rglob("*") if path.is_file()}
    shown = {p for p in below if not any(q[0] in "._" for q in Path(p).relative_to(root).parts)}
    assert set(files_below(str(root))) == shown
    assert set(files_below(str(root), shown)) == set()
