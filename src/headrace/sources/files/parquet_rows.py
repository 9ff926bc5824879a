"""`sources.parquet`: rows of Parquet files, which stay Arrow columns and never become objects here.

A position is a row number. A range ends at the end of a row group where one is near enough,
because a row group can only be decoded as a whole. A task that reads a group in several small
ranges keeps the decoded group between them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from headrace.errors import InvalidPipeline, SourceError
from headrace.model.source import Reading, Source, digest_of_sum, positions
from headrace.model.values.arrow import one_array, one_batch
from headrace.model.values.names import known_options
from headrace.sources.files.file_set import Paths
from headrace.sources.files.format import FileFormat
from headrace.sources.files.input_file import InputFile, OpenFile, unreadable_error
from headrace.sources.files.source import file_source
from headrace.sources.options import TIMING_OPTIONS, TimingOptions

# A range may end this share of its length early in order to end with a row group.
SNAP_SHARE = 4
FOOTERS_MAX = 256
DECODED_BYTES_MAX = 128 * 1024 * 1024
READ_BYTES = 1024 * 1024
CODED_BYTES_MAX = 4
"""A column of text with fewer bytes per cell than this is a dictionary and numbers."""


@known_options("sources.parquet", TIMING_OPTIONS)
def parquet(
    paths: Paths,
    *,
    columns: Sequence[str] | None = None,
    watch: bool = False,
    ordered_by_name: bool = False,
    **timing: Unpack[TimingOptions],
) -> Source:
    """Rows of Parquet files.

    `columns` names the columns to read. `paths` is a file, a directory, a glob pattern or a list
    of these. With `watch=True` files that appear later are read as well; they must appear
    complete, by a rename. With `ordered_by_name=True` all files are one split, read in the order
    of their names.
    """
    if columns is not None:
        if isinstance(columns, str) or not columns:
            raise InvalidPipeline("sources.parquet: columns= is a list of names")
        for option in ("timestamp", "id"):
            name = timing.get(option)
            if isinstance(name, str) and name not in columns:
                raise InvalidPipeline(
                    f"sources.parquet: columns= leaves out {name!r}, which {option}= needs"
                )
    return file_source(
        "parquet",
        ParquetFormat(columns),
        paths,
        watch=watch,
        ordered_by_name=ordered_by_name,
        timing=timing,
    )


class ParquetFormat(FileFormat):
    """Reads ranges of rows by their numbers."""

    def __init__(self, columns: Sequence[str] | None = None) -> None:
        self.columns = None if columns is None else list(columns)

    def columns_of(self, file: InputFile) -> Sequence[str] | None:
        return self.columns or footer(file).names

    def length(self, file: InputFile) -> int:
        return int(footer(file).ends[-1])

    def next_end(self, file: InputFile, start: int, records: int) -> tuple[int, int]:
        ends = footer(file).ends
        end = min(start + records, int(ends[-1]))
        group = int(ends[np.searchsorted(ends, end, side="right") - 1])
        if group > start and end - group <= (end - start) // SNAP_SHARE:
            end = group
        return end, end - start

    def cuts(self, file: InputFile, start: int, end: int, parts: int) -> list[int]:
        ends = footer(file).ends
        share = (end - start) / parts
        found: list[int] = []
        for part in range(1, parts):
            wanted = round(start + share * part)
            nearest = int(ends[np.argmin(np.abs(ends - wanted))])
            cut = nearest if abs(nearest - wanted) <= share / SNAP_SHARE else wanted
            if (found[-1] if found else start) < cut < end:
                found.append(cut)
        return found

    def read(self, file: InputFile, name: str, start: int, end: int) -> Reading:
        return self._read(file, start, end, None)

    def read_columns(
        self, file: InputFile, name: str, start: int, end: int, needed: frozenset[str]
    ) -> Reading:
        return self._read(file, start, end, footer(file).left_out(self.columns, needed))

    def _read(
        self, file: InputFile, start: int, end: int, left_out: Mapping[str, pa.DataType] | None
    ) -> Reading:
        known = footer(file)
        self._check_columns(file, known)
        first = int(np.searchsorted(known.ends, start, side="right")) - 1
        past = int(np.searchsorted(known.ends, end, side="left"))
        groups = list(range(first, max(past, first)))
        skip = start - int(known.ends[first])
        try:
            table, digests = _rows(file, known, groups, self.columns, left_out or {}, end - start)
        except (pa.ArrowException, OSError) as error:
            raise unreadable_error(file, error) from error
        rows = _with_instants(table.slice(skip, end - start), known)
        rows, coded = _with_text(rows, known)
        batch = one_batch(_with_nulls(rows, self.columns or known.names, left_out or {}))
        ended = dict(zip(groups, digests, strict=True))
        digest, tail = self._sums(known, start, end, ended.__getitem__)
        return Reading(
            positions(start, batch.num_rows),
            columns=batch,
            digest=xxhash.xxh3_128_hexdigest(repr(digests).encode()),
            sum=digest,
            tail=tail,
            left_out=tuple(left_out or ()),
            coded=coded,
        )

    def sum_of(self, file: InputFile, end: int) -> tuple[str, str]:
        known = footer(file)
        with file.open() as opened:
            return self._sums(
                known, 0, end, lambda group: _fetched_digest(opened, known, group, self.columns)
            )

    def _sums(
        self, known: Footer, start: int, end: int, digest: Callable[[int], int]
    ) -> tuple[str, str]:
        """The sum of the row groups whose last row lies in a range, and of the one at its end."""
        total, tail = 0, ""
        for group, (first, last) in enumerate(pairwise(known.ends.tolist())):
            if first < last and start < last <= end:
                total += digest(group)
            elif first < end < last:
                tail = f"{digest(group) % 2**64:016x}"
        return digest_of_sum(total, part=",".join(self.columns or ())), tail

    def _check_columns(self, file: InputFile, known: Footer) -> None:
        missing = [name for name in self.columns or () if name not in known.names]
        if missing:
            raise SourceError(
                f"{file} has no column {missing[0]!r}; its columns are {', '.join(known.names)}"
            )


class Footer:
    """What is known of a Parquet file without decoding a row."""

    __slots__ = ("coded", "ends", "int96", "metadata", "names", "stamp", "types")

    def __init__(self, metadata: Any, stamp: Hashable) -> None:
        counts = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        self.metadata = metadata
        self.stamp = stamp
        schema = metadata.schema.to_arrow_schema()
        self.names: list[str] = schema.names
        self.types: list[pa.DataType] = schema.types
        self.ends = np.cumsum([0, *counts], dtype=np.int64)
        """Row numbers at which row groups end, after a leading 0."""
        leaves = [metadata.schema.column(i) for i in range(metadata.num_columns)]
        self.int96 = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
        self.coded: list[set[str]] | None = None
        """For each row group, the columns that are dictionaries there; None: not looked at yet."""

    def has_clear_names(self) -> bool:
        """Whether a name means one column, and never a part of another."""
        return len(set(self.names)) == len(self.names) and not any("." in n for n in self.names)

    def texts(self) -> list[str]:
        """The columns of plain text."""
        if not self.has_clear_names():
            return []
        return [n for n, kind in zip(self.names, self.types, strict=True) if kind == pa.string()]

    def left_out(
        self, columns: Sequence[str] | None, needed: frozenset[str]
    ) -> dict[str, pa.DataType]:
        """The columns that need not be decoded, with their types.

        Columns in whose cells something may be wrong are always decoded, and at least one column.
        """
        if not self.has_clear_names():
            return {}
        asked = self.names if columns is None else columns
        types = dict(zip(self.names, self.types, strict=True))
        found = {
            name: types[name]
            for name in asked
            if name not in needed and name in types and _is_plain(types[name])
        }
        return {} if len(found) == len(asked) else found


_footers: OrderedDict[str, Footer] = OrderedDict()
_decoded: list[tuple[Any, pa.Table, list[int]]] = []


def footer(file: InputFile) -> Footer:
    """A file's footer, read again only when the file has changed."""
    try:
        stamp, name = file.identity(), str(file)
        known = _footers.get(name)
        if known is None or known.stamp != stamp:
            with file.open() as opened:
                known = Footer(pq.read_metadata(opened.for_arrow(), memory_map=True), stamp)
            _footers[name] = known
            while len(_footers) > FOOTERS_MAX:
                _footers.popitem(last=False)
        return known
    except pa.ArrowException as error:
        raise SourceError(f"the file {file} is not Parquet, or damaged: {error}") from error
    except OSError as error:
        raise unreadable_error(file, error) from error


def _rows(
    file: InputFile,
    known: Footer,
    groups: list[int],
    columns: list[str] | None,
    left_out: Mapping[str, pa.DataType],
    wanted: int,
) -> tuple[pa.Table, list[int]]:
    """The rows of whole row groups, and a digest of each group's bytes.

    Columns of text that the file has as dictionaries are dictionaries here. The digest counts
    columns that are left out, too: it does not depend on what is done with them.
    """
    decoded = columns
    if left_out:
        decoded = [name for name in columns or known.names if name not in left_out]
    key = (str(file), known.stamp, groups, decoded)
    kept = _decoded[0] if _decoded else None
    if kept is not None and kept[0] == key:
        return kept[1], kept[2]
    with file.open() as opened:
        opened.fetch(*(span for group in groups for span in _spans(known, group, columns)))
        digests = [_digest(opened, known, group, columns) for group in groups]
        with pq.ParquetFile(
            opened.for_arrow(),
            metadata=known.metadata,
            memory_map=True,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,  # where pages have one: Spark writes them
            read_dictionary=_coded_columns(known, groups),
        ) as rows:
            table = rows.read_row_groups(groups, columns=decoded)
    if len(groups) == 1 and wanted < table.num_rows and table.nbytes <= DECODED_BYTES_MAX:
        _decoded[:] = [(key, table, digests)]
    return table, digests


def _fetched_digest(opened: OpenFile, known: Footer, group: int, columns: list[str] | None) -> int:
    opened.fetch(*_spans(known, group, columns))
    return _digest(opened, known, group, columns)


def _digest(opened: OpenFile, known: Footer, group: int, columns: list[str] | None) -> int:
    """A digest of the bytes of a row group: of the columns that are read."""
    digest = xxhash.xxh3_128(seed=group)
    for start, end in _spans(known, group, columns):
        for place in range(start, end, READ_BYTES):
            digest.update(opened.read(place, min(place + READ_BYTES, end)))
    return int(digest.intdigest())


def _spans(known: Footer, group: int, columns: list[str] | None) -> list[tuple[int, int]]:
    """Where the bytes of a row group lie in the file: of the columns that are read."""
    metadata = known.metadata.row_group(group)
    found: list[tuple[int, int]] = []
    for index in range(metadata.num_columns):
        column = metadata.column(index)
        path = column.path_in_schema
        if columns is None or any(path == c or path.startswith(f"{c}.") for c in columns):
            start = column.data_page_offset
            if column.has_dictionary_page and column.dictionary_page_offset is not None:
                start = min(start, column.dictionary_page_offset)
            found.append((start, start + column.total_compressed_size))
    return found


def _coded_columns(known: Footer, groups: list[int]) -> list[str]:
    """The columns of text whose cells are numbers of a dictionary in all these row groups.

    A writer falls back to plain cells when a dictionary becomes too large. A plain cell of text
    takes four bytes and more.
    """
    if known.coded is None:
        known.coded = [
            {
                column.path_in_schema
                for column in map(group.column, range(group.num_columns))
                if column.has_dictionary_page
                and column.total_uncompressed_size < CODED_BYTES_MAX * column.num_values
            }
            for group in map(known.metadata.row_group, range(known.metadata.num_row_groups))
        ]
    return [n for n in known.texts() if groups and all(n in known.coded[at] for at in groups)]


def _with_text(table: pa.Table, known: Footer) -> tuple[pa.Table, dict[str, pa.DictionaryArray]]:
    """Turns dictionaries into plain text; returns those too that have all their values in use."""
    plain = known.texts()
    found: dict[str, pa.DictionaryArray] = {}
    for index, field in enumerate(table.schema):
        if not pa.types.is_dictionary(field.type) or field.name not in plain:
            continue
        cells = one_array(table.column(index).unify_dictionaries())
        table = table.set_column(index, field.with_type(pa.string()), cells.dictionary_decode())
        if not cells.null_count and _all_used(cells):
            found[field.name] = cells
    return table, found


def _all_used(cells: pa.DictionaryArray) -> bool:
    """Whether every value of a dictionary occurs, and none is there twice."""
    values = cells.dictionary
    numbers = cells.indices.to_numpy()
    used = np.bincount(numbers, minlength=len(values))
    return bool(used.all()) and len(values.unique()) == len(values)


def _is_plain(kind: pa.DataType) -> bool:
    """Whether Python can hold every cell of this type."""
    return (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        or pa.types.is_string(kind) or pa.types.is_binary(kind)
    )  # fmt: skip


def _with_nulls(
    table: pa.Table, names: Sequence[str], left_out: Mapping[str, pa.DataType]
) -> pa.Table:
    """Puts nulls in the place of columns that were left out."""
    if not left_out:
        return table
    rows = table.num_rows
    columns = {
        name: pa.nulls(rows, left_out[name]) if name in left_out else table.column(name)
        for name in names
    }
    return pa.table(columns)


def _with_instants(table: pa.Table, known: Footer) -> pa.Table:
    """Marks INT96 columns as UTC: Spark writes instants so by default, but Arrow cannot know."""
    for index, name in enumerate(table.schema.names):
        if name in known.int96:
            instants = table.column(index).cast(pa.timestamp("us", tz="UTC"))
            table = table.set_column(index, name, instants)
    return table
