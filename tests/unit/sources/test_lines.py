"""Ranges of text-like files end with records, however the blocks fall."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace import sources
from headrace.errors import InvalidPipeline, SourceError
from headrace.model.source import Range, Reading, Source, Workspace
from headrace.store.disk import DiskStore


def read_all(source: Source, split: str, records: int) -> Reading:
    values, rejected, positions, position, last = [], [], [], 0, False
    while not last:
        planned = source.plan(split, position, records)
        assert planned is not None
        reading = source.read(split, planned)
        values += reading.values or []
        rejected += reading.rejected
        positions += reading.positions.tolist()
        position, last = planned.end, planned.last
    return Reading(positions, values=values, rejected=rejected)


def read_file(path: Path, content: bytes, source: Source | None = None) -> Reading:
    path.write_bytes(content)
    source = source or sources.jsonl(str(path))
    source.prepare(Workspace(DiskStore(path.parent / "workspace")))
    return read_all(source, path.name, 1000)


small_blocks = st.tuples(st.sampled_from([4, 16, 64]), st.sampled_from([3, 16, 64]))
cells = st.text(st.sampled_from('ab"\n,é'), max_size=12)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    rows=st.lists(st.tuples(cells, cells), max_size=25),
    blocks=small_blocks,
    records=st.integers(1, 9),
    parts=st.integers(2, 5),
    ends=st.booleans(),
)
def test_quoted_newlines_never_split_a_record(
    rows: list[tuple[str, str]],
    blocks: tuple[int, int],
    records: int,
    parts: int,
    ends: bool,
    tmp_path: Path,
) -> None:
    path = tmp_path / "rows.csv"
    text = "\n".join(",".join(quoted(c) for c in row) for row in [("a", "b"), *rows])
    path.write_bytes((text + "\n" * ends).encode())
    source = sources.csv(str(path))
    source.format.sample_bytes, source.format.scan_bytes = blocks
    source.format.cut_from = 1
    reading = read_all(source, "rows.csv", records)
    size = path.stat().st_size
    whole = Range(0, size, len(rows), True, "")
    pieces = source.parallel("rows.csv", whole, parts) if size else ()
    together = [v for piece in pieces for v in source.read("rows.csv", piece).values or []]
    assert not reading.rejected
    assert reading.values == together == [{"a": a, "b": b} for a, b in rows]


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    content=st.lists(st.text(st.characters(exclude_characters="\r\n\ufeff", codec="utf-8"))),
    blocks=small_blocks,
    records=st.integers(1, 9),
)
def test_lines_are_the_same_whatever_the_blocks(
    content: list[str], blocks: tuple[int, int], records: int, tmp_path: Path
) -> None:
    path = tmp_path / "lines.txt"
    path.write_bytes("".join(line + "\n" for line in content).encode())
    source = sources.text(str(path))
    source.format.sample_bytes, source.format.scan_bytes = blocks
    assert read_all(source, "lines.txt", records).values == content


def test_a_malformed_line_is_rejected_with_its_place_and_the_rest_is_read(tmp_path: Path) -> None:
    reading = read_file(tmp_path / "in.jsonl", b'{"a":1}\n\n  \n{"a":\n[2]\n' + b"x" * 500 + b"\n3")
    assert reading.values == [{"a": 1}, [2], 3]
    assert reading.positions == [0, 18, 523]
    broken, long = reading.rejected
    assert (broken.position, broken.raw) == (12, '{"a":')
    assert broken.reason.startswith("in.jsonl, byte 12: not JSON")
    assert long.raw == "x" * 200


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a":"\xff"}', "not UTF-8: byte 0xff at offset 6"),
        (b'{"a":"\\ud800"}', "not JSON"),
        (b'{"a":NaN}', "not JSON"),
        (b"[" * 100_000, "nested more than 40 deep"),
        (b'{"a":1}{"a":2}', "not JSON"),
        (b"\x00\x01", "not JSON"),
    ],
)
def test_what_is_not_json_says_why(line: bytes, reason: str, tmp_path: Path) -> None:
    reading = read_file(tmp_path / "in.jsonl", b"1\n" + line + b"\n2\n")
    assert reading.values == [1, 2]
    assert [r.position for r in reading.rejected] == [2]
    assert reason in reading.rejected[0].reason


def test_invalid_utf8_in_text_is_rejected_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    reading = read_file(path, b"fine\nbad \xc3\x28\r\nfine too\r\n", sources.text(str(path)))
    assert reading.values == ["fine", "fine too"]
    (rejected,) = reading.rejected
    assert rejected.position == 5
    assert rejected.raw == "bad \\xc3("
    assert "in.txt, byte 5: not UTF-8: byte 0xc3 at offset 4" in rejected.reason


def test_a_byte_order_mark_and_carriage_returns_are_no_part_of_the_values(tmp_path: Path) -> None:
    mark = b"\xef\xbb\xbf"
    path = tmp_path / "in.txt"
    assert read_file(path, mark + b"a\r\nb\r\n", sources.text(str(path))).values == ["a", "b"]
    assert read_file(tmp_path / "in.jsonl", mark + b"1\r\n2\r\n").values == [1, 2]
    path = tmp_path / "in.csv"
    read = read_file(path, mark + b'x,y\r\n1,"2\r\n"\r\n', sources.csv(str(path)))
    assert read.values == [{"x": "1", "y": "2\r\n"}]


def test_cells_are_converted_and_those_that_cannot_be_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    content = b"n,ok,s\n1,false,a\n,,\nten,true,b\n3,perhaps,c\n1,2\n1,2,3,4\n4,yes,\xff\n5,1,d\n"
    reading = read_file(path, content, sources.csv(str(path), types={"n": int, "ok": bool}))
    assert reading.values == [
        {"n": 1, "ok": False, "s": "a"},
        {"n": None, "ok": None, "s": ""},
        {"n": 5, "ok": True, "s": "d"},
    ]
    reasons = [rejected.reason for rejected in reading.rejected]
    assert "column 'n' holds 'ten'" in reasons[0]
    assert "column 'ok' holds 'perhaps'" in reasons[1]
    assert "2 cells, but there are 3 columns" in reasons[2]
    assert "4 cells, but there are 3 columns" in reasons[3]
    assert "not UTF-8" in reasons[4]


def test_an_open_quote_rejects_what_it_swallows_and_nothing_before_it(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    reading = read_file(path, b'a,b\n1,2\n3,"open\n5,6\n', sources.csv(str(path)))
    assert reading.values == [{"a": "1", "b": "2"}]
    assert [rejected.position for rejected in reading.rejected] == [8]
    assert "is a quote not closed?" in reading.rejected[0].reason


def test_a_large_cell_is_read_in_quotes_as_without(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    csv.field_size_limit(128 * 1024)  # what a process starts with
    large = "x" * (csv.field_size_limit() + 1)
    reading = read_file(path, f'a,b\n1,{large}\n2,"{large}"\n'.encode(), sources.csv(str(path)))
    assert not reading.rejected
    assert reading.values == [{"a": "1", "b": large}, {"a": "2", "b": large}]


def test_csv_without_a_header_and_with_other_signs(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    source = sources.csv(str(path), columns=["a", "b"], delimiter=";", quote=None)
    assert read_file(path, b'1;"x\n2;y"\n', source).values == [
        {"a": "1", "b": '"x'},
        {"a": "2", "b": 'y"'},
    ]


def test_a_column_that_types_names_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    with pytest.raises(SourceError, match=r"no column 'c'.*its columns are a, b"):
        read_file(path, b"a,b\n1,2\n", sources.csv(str(path), types={"c": int}))
    with pytest.raises(SourceError, match="names a column twice: a, a"):
        read_file(path, b"a,a\n1,2\n", sources.csv(str(path)))
    with pytest.raises(InvalidPipeline, match="delimiter= is one ASCII character"):
        sources.csv(str(path), delimiter="||")


def test_a_header_longer_than_a_block_is_found_from_any_range(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("a long name,another long name\n" + "1,2\n" * 10)
    source = sources.csv(str(path))
    source.format.sample_bytes = 8
    reading = read_all(source, "in.csv", 1)
    assert reading.values == [{"a long name": "1", "another long name": "2"}] * 10


def test_a_damaged_gzip_is_named(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl.gz"
    for content in (b"not gzip", b"\x1f\x8b\x08\x00"):
        with pytest.raises(SourceError, match=r"in.jsonl.gz is damaged and cannot be unpacked"):
            read_file(path, content)


def test_planning_a_large_file_reads_little_of_it(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_bytes(b"0123456789\n" * 200_000)
    source = sources.text(str(path))
    planned = source.plan("in.txt", 0, 100_000)
    assert planned is not None and planned.records == pytest.approx(100_000, rel=0.01)
    reading = source.read("in.txt", planned)
    assert len(reading.values or []) == planned.records


def test_json_numbers_are_read_exactly_or_rejected(tmp_path: Path) -> None:
    numbers = [2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**4000, 2**53 + 1]
    digits = [*map(str, numbers), "-0.0", "0.1", "1E5", "100000000000000000000.0"]
    refused = ["1e400", "-1e400", "1" * 5000, "NaN", "Infinity", '"\\ud800"']
    content = "\n".join(f'{{"n": {text}}}' for text in [*digits, *refused])
    reading = read_file(tmp_path / "numbers.jsonl", content.encode())
    values = [value["n"] for value in reading.values or []]
    assert values[: len(numbers)] == numbers and {type(v) for v in values[:6]} == {int}
    assert repr(values[len(numbers) :]) == repr([-0.0, 0.1, 1e5, 1e20])
    assert len(reading.rejected) == len(refused)
