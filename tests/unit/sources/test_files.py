"""Which files a source reads, how they are named, and what a growing directory does."""

from __future__ import annotations

import gzip
import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace import sources
from headrace.errors import InvalidPipeline, SourceError
from headrace.model.source import Source, Workspace
from headrace.sources.files.sequence import Extent, encode_extents
from headrace.sources.files.source import OrderedFileSource
from headrace.store.disk import DiskStore


def put(path: Path, text: str = "x\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def prepared(source: Source, tmp_path: Path) -> Source:
    source.prepare(Workspace(DiskStore(tmp_path / "workspace")))
    return source


def values_from(source: Source, position: int = 0) -> tuple[list[Any], int]:
    """Everything that the single split has from `position` on, and where that ends."""
    (split,) = source.splits()
    values: list[Any] = []
    while (planned := source.plan(split, position, 2)) is not None:
        values += source.read(split, planned).values or []
        position = planned.end
        if planned.last:
            break
    return values, position


def test_hidden_files_are_left_out_and_names_are_relative_to_the_base(tmp_path: Path) -> None:
    data = tmp_path / "in"
    for name in ("b.txt", "a.txt", "deep/c.txt", ".b.txt", "_SUCCESS", "_tmp/d.txt", "deep/.e"):
        put(data / name)
    assert prepared(sources.text(data), tmp_path).splits() == ["a.txt", "b.txt", "deep/c.txt"]
    assert prepared(sources.text(f"{data}/*.txt"), tmp_path).splits() == ["a.txt", "b.txt"]
    assert prepared(sources.text(f"{data}/**/*.txt"), tmp_path).splits() == [
        "a.txt", "b.txt", "deep/c.txt",
    ]  # fmt: skip
    assert prepared(sources.text(data / "a.txt"), tmp_path).splits() == ["a.txt"]
    two = sources.text([data / "a.txt", f"{data}/deep/*", f"{data}/a*"])
    assert prepared(two, tmp_path).splits() == ["a.txt", "deep/c.txt"]


def test_a_file_named_outright_is_read_though_it_looks_hidden(tmp_path: Path) -> None:
    path = put(tmp_path / "_odd.txt")
    assert prepared(sources.text(path), tmp_path).splits() == ["_odd.txt"]


def test_a_name_does_not_depend_on_which_files_are_there(tmp_path: Path) -> None:
    put(tmp_path / "in" / "2024" / "a.txt")
    before = prepared(sources.text(f"{tmp_path}/in/*/*.txt"), tmp_path).splits()
    put(tmp_path / "in" / "2025" / "a.txt")
    after = prepared(sources.text(f"{tmp_path}/in/*/*.txt"), tmp_path).splits()
    assert before == ["2024/a.txt"]
    assert after == ["2024/a.txt", "2025/a.txt"]


def test_relative_paths_are_those_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "in" / "a.txt")
    monkeypatch.chdir(tmp_path)
    source = prepared(sources.text("in/*.txt"), tmp_path)
    planned = source.plan("a.txt", 0, 10)
    monkeypatch.chdir("/")
    assert planned is not None
    assert pickle.loads(pickle.dumps(source)).read("a.txt", planned).values == ["x"]


def test_a_fixed_set_without_files_names_its_pattern(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no directory .*nothing: correct the path"):
        prepared(sources.jsonl(f"{tmp_path}/nothing/*.jsonl"), tmp_path)
    with pytest.raises(SourceError, match=r"no file matches .*/\*\.jsonl"):
        prepared(sources.jsonl(f"{tmp_path}/*.jsonl"), tmp_path)
    with pytest.raises(SourceError, match="there is no file .*missing.csv"):
        prepared(sources.csv(tmp_path / "missing.csv"), tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="no file matches .*empty"):
        prepared(sources.csv(tmp_path / "empty"), tmp_path)


def test_a_source_without_paths_is_refused_at_once() -> None:
    with pytest.raises(InvalidPipeline, match="needs a path"):
        sources.jsonl([])


def test_a_file_without_permission_says_so(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    path = put(tmp_path / "a.txt")
    path.chmod(0)
    with pytest.raises(SourceError, match="permission denied"):
        prepared(sources.text(path), tmp_path).plan("a.txt", 0, 1)


def test_a_watched_directory_grows_and_each_file_ends(tmp_path: Path) -> None:
    data = tmp_path / "in"
    with pytest.raises(SourceError, match=f"no directory {data} to watch"):
        prepared(sources.text(data, watch=True), tmp_path)
    data.mkdir()
    source = prepared(sources.text(data, watch=True), tmp_path)
    assert not source.bounded
    assert source.splits() == []
    put(data / ".b.txt")
    put(data / "a.txt")
    assert source.splits() == ["a.txt"]
    (data / ".b.txt").rename(data / "b.txt")
    assert source.splits() == ["a.txt", "b.txt"]
    planned = source.plan("b.txt", 0, 10)
    assert planned is not None and planned.last


def test_the_watermark_of_a_file_is_where_it_starts(tmp_path: Path) -> None:
    put(tmp_path / "in" / "10.txt")
    source = sources.text(tmp_path / "in", starts=lambda name: int(name.removesuffix(".txt")))
    assert prepared(source, tmp_path).low_watermark("10.txt", 0) == 10


def test_files_in_name_order_are_one_split_across_files(tmp_path: Path) -> None:
    for name in ("b", "a", "c", "d"):
        put(tmp_path / "in" / f"{name}.txt", "" if name == "c" else f"{name}1\n{name}2\n{name}3")
    source = prepared(sources.text(tmp_path / "in", ordered_by_name=True), tmp_path)
    assert source.splits() == ("files",)
    planned = source.plan("files", 0, 100)
    assert planned is not None and planned.last and planned.records == 9
    values, _ = values_from(source)
    assert values == ["a1", "a2", "a3", "b1", "b2", "b3", "d1", "d2", "d3"]


def test_rejected_lines_have_the_position_of_the_split_and_the_byte_of_the_file(
    tmp_path: Path,
) -> None:
    put(tmp_path / "in" / "a.jsonl", "1\n")
    put(tmp_path / "in" / "b.jsonl", "2\n?\n")
    source = prepared(sources.jsonl(tmp_path / "in", ordered_by_name=True), tmp_path)
    planned = source.plan("files", 0, 100)
    assert planned is not None
    reading = source.read("files", planned)
    assert reading.positions.tolist() == [0, 2]
    (rejected,) = reading.rejected
    assert rejected.position == 4
    assert rejected.reason.startswith("b.jsonl, byte 2:")


def test_a_watched_directory_in_name_order_puts_latecomers_last(tmp_path: Path) -> None:
    data = tmp_path / "in"
    put(data / "b.txt", "b\n")
    source = sources.text(data, watch=True, ordered_by_name=True, starts=lambda name: ord(name[0]))
    prepared(source, tmp_path)
    values, position = values_from(source)
    assert values == ["b"]
    put(data / "a.txt", "a\n")
    put(data / "c.txt", "c\n")
    values, end = values_from(source, position)
    assert values == ["a", "c"]
    assert source.low_watermark("files", 0) == ord("b")
    assert source.low_watermark("files", position) == ord("b")
    assert source.low_watermark("files", position + 1) == ord("a")
    (data / "b.txt").unlink()  # Read to its end, so nobody needs it any more.
    again = prepared(sources.text(data, watch=True, ordered_by_name=True), tmp_path)
    assert values_from(again, position) == (["a", "c"], end)


def test_what_is_no_regular_file_is_left_out(tmp_path: Path) -> None:
    data = tmp_path / "in"
    put(data / "a.txt", "a\n")
    os.mkfifo(data / "pipe.txt")
    (data / "gone.txt").symlink_to(tmp_path / "nowhere")
    (data / "round.txt").symlink_to(data / "round.txt")
    (data / "linked.txt").symlink_to(data / "a.txt")
    for paths in (data, f"{data}/*.txt"):
        assert prepared(sources.text(paths), tmp_path).splits() == ["a.txt", "linked.txt"]
    # One that takes the place of a file that was found is not waited for either.
    source = prepared(sources.text(data), tmp_path)
    (data / "a.txt").unlink()
    os.mkfifo(data / "a.txt")
    with pytest.raises(SourceError, match="a.txt is not a regular file"):
        source.plan("a.txt", 0, 10)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_name_that_is_not_utf8_is_told_with_what_to_do(by_name: bool, tmp_path: Path) -> None:
    data = tmp_path / "in"
    put(data / "a.txt")
    source = sources.text(data, watch=True, ordered_by_name=by_name)
    prepared(source, tmp_path)
    odd = os.fsencode(data) + b"/caf\xe9.txt"
    with open(odd, "w") as file:
        file.write("x\n")
    for paths in (data, f"{data}/*.txt"):
        with pytest.raises(SourceError, match=r"caf\\xe9.txt' is not UTF-8.*rename the file"):
            prepared(sources.text(paths), tmp_path / "other")
    with pytest.raises(SourceError, match="rename the file"):
        source.splits()
    os.rename(odd, data / "café.txt")
    source.splits()


PACKED = gzip.compress(b"one\ntwo\n")


def test_a_million_packed_files_fit_into_one_split(tmp_path: Path) -> None:
    put(tmp_path / "in" / "a.gz").write_bytes(PACKED)
    source = sources.text(tmp_path / "in", watch=True, ordered_by_name=True)
    assert isinstance(source, OrderedFileSource)
    prepared(source, tmp_path)
    (first,) = source.extents
    base = first.length * 1_000_000
    source.extents = [Extent(first.name, base, first.length)]
    planned = source.plan("files", base, 10)
    assert planned is not None
    assert source.read("files", planned).positions.tolist() == [base, base + 4]


def test_packed_files_of_a_layout_with_the_older_length_are_read_once(tmp_path: Path) -> None:
    older = 2**44
    layout = tmp_path / "workspace" / "layout"
    layout.mkdir(parents=True)
    pages = [Extent("a.gz", 0, older), Extent("b.gz", older, older)]
    (layout / "00000000").write_bytes(encode_extents(pages))
    for name in ("a", "b", "c"):
        put(tmp_path / "in" / f"{name}.gz").write_bytes(PACKED)
    source = sources.text(tmp_path / "in", watch=True, ordered_by_name=True)
    prepared(source, tmp_path)
    positions, position = [], 0
    while (planned := source.plan("files", position, 2)) is not None:
        positions += source.read("files", planned).positions.tolist()
        position = planned.end
    assert positions == [0, 4, older, older + 4, 2 * older, 2 * older + 4]


def test_a_file_that_unpacks_to_more_than_its_positions_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "a.gz").write_bytes(PACKED)
    source = prepared(sources.text(tmp_path / "a.gz"), tmp_path)
    planned = source.plan("a.gz", 0, 10)
    assert planned is not None
    source.format.unpacked_bytes_max = 7
    with pytest.raises(SourceError, match="unpacks to 8 bytes.*split it into several"):
        source.read("a.gz", planned)


def starts_at(name: str) -> int:
    return int(name.removesuffix(".txt"))


@pytest.mark.parametrize("watch", [False, True])
def test_a_task_finds_the_same_watermark_as_the_driver(watch: bool, tmp_path: Path) -> None:
    for name in ("10", "20", "30"):
        put(tmp_path / "in" / f"{name}.txt", "ab\n")
    source = sources.text(tmp_path / "in", watch=watch, ordered_by_name=True, starts=starts_at)
    prepared(source, tmp_path)
    found = [source.low_watermark("files", position) for position in range(10)]
    assert found == ([10] * 4 + [20] * 3 + [30] * 3 if watch else [10] * 3 + [20] * 3 + [30] * 4)
    task = pickle.loads(pickle.dumps(source))
    assert [task.low_watermark("files", position) for position in range(10)] == found
    if watch:
        put(tmp_path / "in" / "40.txt", "ab\n")
        before = pickle.dumps(task)
        source.splits()
        assert source.low_watermark("files", 9) == task.low_watermark("files", 9) == 30
        assert task.low_watermark("files", 10) == 40
        assert pickle.dumps(task) == before


def test_a_fixed_set_in_name_order_cannot_grow_between_runs(tmp_path: Path) -> None:
    put(tmp_path / "in" / "b.txt")
    prepared(sources.text(tmp_path / "in", ordered_by_name=True), tmp_path)
    put(tmp_path / "in" / "a.txt")
    with pytest.raises(SourceError, match="a.txt was not there, or empty, when this"):
        prepared(sources.text(tmp_path / "in", ordered_by_name=True), tmp_path)


def test_a_line_file_rewritten_between_runs_is_noticed(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", "one\ntwo\n")
    path.write_text("longer\n")
    with pytest.raises(SourceError, match="a.txt has changed"):
        prepared(sources.text(path), tmp_path).plan("a.txt", 4, 10)


def write_parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


def test_parquet_ranges_end_with_row_groups_when_near(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"n": range(1000)}, row_group_size=100)
    source = prepared(sources.parquet(path), tmp_path)
    ends = []
    for start, records in ((0, 110), (0, 199), (50, 10), (95, 10), (0, 100)):
        planned = source.plan("a.parquet", start, records)
        assert planned is not None
        ends.append(planned.end)
    assert ends == [100, 199, 60, 105, 100]


def test_parquet_columns_are_chosen_and_checked(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"n": [1], "s": ["x"]})
    source = prepared(sources.parquet(path, columns=["s"]), tmp_path)
    planned = source.plan("a.parquet", 0, 10)
    assert planned is not None
    assert source.read("a.parquet", planned).columns.to_pylist() == [{"s": "x"}]
    missing = prepared(sources.parquet(path, columns=["t"]), tmp_path)
    with pytest.raises(SourceError, match="no column 't'; its columns are n, s"):
        missing.read("a.parquet", planned)
    with pytest.raises(InvalidPipeline, match="leaves out 'n', which timestamp= needs"):
        sources.parquet(path, columns=["s"], timestamp="n")


def test_what_is_not_parquet_is_named(tmp_path: Path) -> None:
    path = put(tmp_path / "a.parquet", "not parquet at all")
    with pytest.raises(SourceError, match="a.parquet is not Parquet, or damaged"):
        prepared(sources.parquet(path), tmp_path).plan("a.parquet", 0, 1)


def test_instants_that_spark_wrote_as_int96_are_utc(tmp_path: Path) -> None:
    instants = pa.array([1_700_000_000_123_456], pa.timestamp("us"))
    path = write_parquet(
        tmp_path / "a.parquet", {"at": instants}, use_deprecated_int96_timestamps=True
    )
    source = prepared(sources.parquet(path), tmp_path)
    planned = source.plan("a.parquet", 0, 1)
    assert planned is not None
    column = source.read("a.parquet", planned).columns.column("at")
    assert column.type == pa.timestamp("us", tz="UTC")
    assert column.cast(pa.int64()).to_pylist() == [1_700_000_000_123_456]


def test_files_with_different_columns_share_a_range(tmp_path: Path) -> None:
    write_parquet(tmp_path / "in" / "a.parquet", {"n": [1]})
    write_parquet(tmp_path / "in" / "b.parquet", {"m": ["x"]})
    source = prepared(sources.parquet(tmp_path / "in", ordered_by_name=True), tmp_path)
    planned = source.plan("files", 0, 10)
    assert planned is not None
    assert source.read("files", planned).values == [{"n": 1}, {"m": "x"}]


def test_small_ranges_of_a_row_group_decode_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"n": range(100)})
    source = prepared(sources.parquet(path), tmp_path)
    decoded = []
    real = pq.ParquetFile.read_row_groups

    def counting(self: Any, groups: list[int], **options: Any) -> Any:
        decoded.append(groups)
        return real(self, groups, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", counting)
    for start in range(0, 100, 10):
        planned = source.plan("a.parquet", start, 10)
        assert planned is not None
        assert source.read("a.parquet", planned).columns.num_rows == 10
    assert decoded == [[0]]


def test_a_damaged_page_of_parquet_is_an_error_and_no_other_value(tmp_path: Path) -> None:
    """A page without compression decodes whatever its bytes are: only its checksum tells."""
    path = tmp_path / "in" / "a.parquet"
    path.parent.mkdir()
    numbers = pa.table({"n": pa.array(range(1000), pa.int64())})
    pq.write_table(
        numbers, path, compression="none", use_dictionary=False, write_page_checksum=True
    )
    data = bytearray(path.read_bytes())
    place = data.index((500).to_bytes(8, "little"))
    data[place] ^= 1
    path.write_bytes(data)
    source = prepared(sources.parquet(path), tmp_path)
    planned = source.plan("a.parquet", 0, 2000)
    assert planned is not None
    with pytest.raises(SourceError, match="a.parquet"):
        source.read("a.parquet", planned)
