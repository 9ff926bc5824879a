"""`sources.jsonl`: every line of a file is a JSON value."""

from __future__ import annotations

import re
from typing import Any, Unpack

import msgspec

from headrace.model.source import Reading, Source
from headrace.model.values.codec import NESTED_MAX
from headrace.model.values.names import known_options
from headrace.model.values.shown import is_nested
from headrace.sources.files.file_set import Paths
from headrace.sources.files.input_file import InputFile
from headrace.sources.files.lines import LineFormat, Lines, not_utf8
from headrace.sources.files.source import file_source
from headrace.sources.options import TIMING_OPTIONS, TimingOptions

_decode = msgspec.json.Decoder().decode
# The decoder treats half a surrogate pair at the end of a text as truncated input.
_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_HALF = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_TOO_DEEP = (
    f"nested more than {NESTED_MAX} deep, which is too deep for a record: read such lines with "
    "sources.text"
)
_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


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
            values = [_decode(raw) for raw in records]
        except _MALFORMED:
            return _line_by_line(lines, records)
        if any(is_nested(values[i], NESTED_MAX) for i in _suspects(lines.data, records)):
            return _line_by_line(lines, records)
        return lines.reading(values)


def _suspects(data: bytes, records: list[bytes]) -> list[int]:
    """Which lines have enough brackets to be nested too deeply."""
    brackets = data.count(b"{") + data.count(b"[")
    # Where records are flat, their own brackets begin lines, and few others are left.
    if brackets - data.count(b"\n{") < NESTED_MAX:
        return []
    return [i for i, raw in enumerate(records) if _brackets(raw) > NESTED_MAX]


def _brackets(raw: bytes) -> int:
    return raw.count(b"{") + raw.count(b"[")


def _line_by_line(lines: Lines, records: list[bytes]) -> Reading:
    values: list[Any] = []
    kept: list[int] = []
    for index, raw in enumerate(records):
        if not raw.strip():
            continue
        try:
            value = _decode(raw)
        except _MALFORMED as error:
            lines.reject(index, raw, _why(error, raw))
            continue
        # Checked here, so that the reason is the same whether or not the decoder failed: the
        # depth at which it fails depends on the depth of its caller.
        if _brackets(raw) > NESTED_MAX and is_nested(value, NESTED_MAX):
            lines.reject(index, raw, _TOO_DEEP)
            continue
        values.append(value)
        kept.append(index)
    return lines.reading(values, kept)


def _why(error: Exception, raw: bytes) -> str:
    if isinstance(error, RecursionError):
        return _TOO_DEEP
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as found:
        return not_utf8(found, raw)
    half = _HALF.search(_PAIR.sub(b"", raw))
    if half is not None:
        return f"not JSON: {half[0].decode()} is half of a surrogate pair, which is no character"
    return f"not JSON: {error}"
