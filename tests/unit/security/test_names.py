"""No name, and no value that becomes a name, leaves the directory that it belongs to."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.engine.support import driver_of, run

from headrace import Computation, InvalidPipeline, Pipeline, SinkError, sinks, sources, state
from headrace.log import paths
from headrace.sinks.files import Claim
from headrace.sinks.high_water import HighWaterMark
from headrace.sinks.parquet import partition_component
from headrace.store.disk import DiskStore
from headrace.system import REAL

EVIL = [
    "../x", "..", ".", "/etc/passwd", "a/b", "a\\b", "a\0b", "a\nb", " a", "~root", "%2e%2e",
    "a\u2044b", "a\uff0fb", "a\u2215b", "\u202eabc", "e\u0301", "a\u200b", "-rf", "$(id)",
    "x" * 101, "中" * 100,
]  # fmt: skip
"""Ways out of a directory, separators that only look like letters, and names too long for disks."""


class Seen(Computation):
    n: int = state(0)

    def process_record(self, record, ctx):
        self.n += 1
        ctx.produce(record.value)


@pytest.mark.parametrize("name", EVIL)
def test_pipelines_computations_streams_and_sinks_refuse_names_that_are_paths(name: str) -> None:
    p = Pipeline("fine")
    p.read("in", sources.memory([]))
    for use in (
        lambda: Pipeline(name),
        lambda: p.read(name, sources.memory([])),
        lambda: p.compute(Seen, inputs={"in": "k"}, name=name),
        lambda: p.compute(Seen, inputs={"in": "k"}, outputs=name),
        lambda: p.compute(Seen, inputs={name: "k"}),
        lambda: p.stream("in").write(sinks.memory(), name=name),
    ):
        with pytest.raises(InvalidPipeline):
            use()


def test_the_longest_name_that_is_allowed_can_be_written(tmp_path: Path) -> None:
    name = "中" * 22
    p = Pipeline(name)
    p.read("in", sources.memory([{"k": 1}] * 5))
    p.compute(Seen, inputs={"in": "k"}, outputs="out", name=name)
    p.stream("out").write(sinks.memory(), name=name)
    assert run(driver_of(p.freeze(), DiskStore(tmp_path))) > 0


@pytest.mark.parametrize("name", EVIL)
def test_whatever_reaches_a_path_is_one_component_of_it(name: str) -> None:
    for path in (paths.state_directory(name), paths.staged_directory(name)):
        assert path.count("/") == 1 and ".." not in path.split("/") and "\0" not in path
    assert "/" not in paths.content_name(1, name, "0" * 32)


@pytest.mark.parametrize("value", [*EVIL[:13], "..\\..\\x", "....//"])
def test_a_value_that_names_a_directory_of_parquet_files_stays_inside(
    value: str, tmp_path: Path
) -> None:
    component = partition_component("k", value)
    assert "/" not in component and "\0" not in component and component.startswith("k=")
    out = tmp_path / "deep" / "out"
    p = Pipeline("parts")
    p.read("in", sources.memory([{"k": value, "n": 1}]))
    p.compute(Seen, inputs={"in": "k"}, outputs="out")
    p.stream("out").write(sinks.parquet(out, partition_by="k"))
    run(driver_of(p.freeze(), DiskStore(tmp_path / "checkpoint")))
    made = {str(f.relative_to(tmp_path)) for f in tmp_path.rglob("*.parquet")}
    assert len(made) == 1 and made.pop().startswith("deep/out/epoch=")
    assert sorted(os.listdir(tmp_path)) == ["checkpoint", "deep"]
    assert os.listdir(tmp_path / "deep") == ["out"]


def test_a_staged_part_that_names_a_way_out_is_refused(tmp_path: Path) -> None:
    from headrace.sinks.epoch_directory import _inside

    for directory in ("../x", "/etc", "k=1/../../x"):
        with pytest.raises(SinkError, match="damaged"):
            _inside(tmp_path, directory, set(), REAL)


def test_a_claim_that_names_a_directory_elsewhere_is_refused(tmp_path: Path) -> None:
    import msgspec

    sink = sinks.jsonl(tmp_path / "out")
    sink._admit("checkpoint")
    (tmp_path / "secret").mkdir()
    for staging in ("../../secret", "/etc", "other"):
        claim = msgspec.json.encode(Claim(staging, HighWaterMark("checkpoint")))
        sink._claims.write(f"{1:012d}", claim)
        with pytest.raises(SinkError, match="is not in _staging"):
            sink._claim(1, Claim(f"{1:012d}.mine", HighWaterMark("checkpoint")))
    assert (tmp_path / "secret").is_dir()


def test_names_that_differ_only_in_how_they_are_composed_are_two_files() -> None:
    composed, decomposed = "\u00e9", "e\u0301"
    assert paths.safe(composed) != paths.safe(decomposed)
    assert paths.safe(composed).isascii() and paths.safe(decomposed).isascii()


def test_columns_of_partitions_may_be_of_any_text() -> None:
    batch = pa.record_batch({"k": ["../..", "a"], "n": [1, 2]})
    from headrace.sinks.parquet import partitions

    assert [d for d, _ in partitions(batch, ["k"])] == ["k=..%2F..", "k=a"]
