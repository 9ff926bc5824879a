"""`sources.text`: every line of a file is a record."""

from __future__ import annotations

from typing import Unpack

from headrace.model.source import Reading, Source
from headrace.model.values.names import known_options
from headrace.sources.files.file_set import Paths
from headrace.sources.files.input_file import InputFile
from headrace.sources.files.lines import LineFormat, Lines, not_utf8
from headrace.sources.files.source import file_source
from headrace.sources.options import TIMING_OPTIONS, TimingOptions


@known_options("sources.text", TIMING_OPTIONS)
def text(
    paths: Paths,
    *,
    watch: bool = False,
    ordered_by_name: bool = False,
    **timing: Unpack[TimingOptions],
) -> Source:
    """Lines of text files as `str`, without their newlines; empty lines are records too.

    `paths` is a file, a directory, a glob pattern or a list of these. With `watch=True` files
    that appear later are read as well; they must appear complete, by a rename. With
    `ordered_by_name=True` all files are one split, read in the order of their names. Files that
    end in `.gz`, `.bz2` or `.xz` are unpacked, each in one piece.
    """
    return file_source(
        "text", TextFormat(), paths, watch=watch, ordered_by_name=ordered_by_name, timing=timing
    )


class TextFormat(LineFormat):
    """Lines as `str`."""

    def read(self, file: InputFile, name: str, start: int, end: int) -> Reading:
        lines = self.lines(file, name, start, end)
        try:
            # Decoding everything at once is ten times faster than line by line.
            values = lines.data.decode("utf-8").removesuffix("\n").split("\n")
        except UnicodeDecodeError:
            return _line_by_line(lines)
        if not len(lines):
            return lines.reading([])
        if b"\r" in lines.data:
            values = [value.removesuffix("\r") for value in values]
        if start == 0:
            values[0] = values[0].removeprefix("\ufeff")
        return lines.reading(values)


def _line_by_line(lines: Lines) -> Reading:
    values: list[str] = []
    kept: list[int] = []
    for index, raw in enumerate(lines.records()):
        try:
            values.append(raw.decode("utf-8"))
        except UnicodeDecodeError as error:
            lines.reject(index, raw, not_utf8(error, raw))
        else:
            kept.append(index)
    return lines.reading(values, kept)
