"""`sources.jsonl`: every line of a file is a JSON value."""

from __future__ import annotations

from typing import Any, Unpack

from headrace.model.source import Reading, Source
from headrace.model.values.codec import NESTED_MAX
from headrace.model.values.names import known_options
from headrace.model.values.shown import is_nested
from headrace.sources.files.file_set import Paths
from headrace.sources.files.input_file import InputFile
from headrace.sources.files.lines import LineFormat, Lines
from headrace.sources.files.source import file_source
from headrace.sources.json_values import MALFORMED, NotJson, brackets, decode, one_value
from headrace.sources.options import TIMING_OPTIONS, TimingOptions

_INSTEAD = "read such lines with sources.text"


@known_options("sources.jsonl", TIMING_OPTIONS)
def jsonl(
    paths: Paths,
    *,
    watch: bool = False,
    ordered_by_name: bool = False,
    **timing: Unpack[TimingOptions],
) -> Source:
    """JSON lines, one value each; blank lines are skipped, malformed ones rejected.

    `paths` is a file, a directory, a glob pattern or a list of these. With `watch=True` files
    that appear later are read as well; they must appear complete, by a rename. With
    `ordered_by_name=True` all files are one split, read in the order of their names. Files that
    end in `.gz`, `.bz2` or `.xz` are unpacked, each in one piece.
    """
    return file_source(
        "jsonl", JsonFormat(), paths, watch=watch, ordered_by_name=ordered_by_name, timing=timing
    )


class JsonFormat(LineFormat):
    """JSON values, one in a line."""

    def read(self, file: InputFile, name: str, start: int, end: int) -> Reading:
        lines = self.lines(file, name, start, end)
        records = lines.records()
        try:
            values = [decode(raw) for raw in records]
        except MALFORMED:
            return _line_by_line(lines, records)
        if any(is_nested(values[i], NESTED_MAX) for i in _suspects(lines.data, records)):
            return _line_by_line(lines, records)
        return lines.reading(values)


def _suspects(data: bytes, records: list[bytes]) -> list[int]:
    """Which lines have enough brackets to be nested too deeply."""
    total = brackets(data)
    # Where records are flat, their own brackets begin lines, and few others are left.
    if total - data.count(b"\n{") < NESTED_MAX:
        return []
    return [i for i, raw in enumerate(records) if brackets(raw) > NESTED_MAX]


def _line_by_line(lines: Lines, records: list[bytes]) -> Reading:
    values: list[Any] = []
    kept: list[int] = []
    for index, raw in enumerate(records):
        if not raw.strip():
            continue
        try:
            values.append(one_value(raw, _INSTEAD))
        except NotJson as error:
            lines.reject(index, raw, str(error))
            continue
        kept.append(index)
    return lines.reading(values, kept)
