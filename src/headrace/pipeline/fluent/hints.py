"""Hints for users of other systems: other names of steps, paths instead of sources and sinks."""

from __future__ import annotations

import os
from typing import Any

NAMES_ELSEWHERE = {
    **dict.fromkeys(("groupBy", "group_by", "groupby", "keyBy", "partition_by"), "key_by(...)"),
    **dict.fromkeys(("process", "transform", "apply"), "compute(...), or map(...)"),
    **dict.fromkeys(("flatMap", "flatmap"), "flat_map(...)"),
    **dict.fromkeys(("where", "filter_"), "filter(...)"),
    **dict.fromkeys(("withColumn", "with_column", "with_columns"), "select(...), or map(...)"),
    **dict.fromkeys(("foreach", "forEach", "for_each"), "write(sinks.foreach(f))"),
    **dict.fromkeys(("print", "show"), "write(sinks.console())"),
    **dict.fromkeys(("sink", "add_sink", "writeStream", "output"), "write(sink)"),
    **dict.fromkeys(("distinct", "dropDuplicates", "drop_duplicates"), "dedup(id, within=)"),
    **dict.fromkeys(("fold", "scan"), "key_by(...).reduce(f, initial)"),
    **{
        name: f'key_by(...).aggregate({name}=agg.{name}("column"))'
        for name in ("sum", "min", "max", "mean")
    },
    "avg": 'key_by(...).aggregate(mean=agg.mean("column"))',
    "agg": "key_by(...).aggregate(n=agg.count())",
}
"""The name of a step in another system -> how it is written here."""

_KINDS = {".jsonl": "jsonl", ".json": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}
_KINDS |= {".parquet": "parquet", ".txt": "text", ".log": "text"}


def source_meant(given: Any) -> str:
    """A hint about what was probably meant by an argument that is not a source."""
    if isinstance(given, str | os.PathLike):
        path = os.fspath(given)
        return f"; did you mean sources.{_kind(path)}({path!r})?"
    if isinstance(given, list | tuple):
        return "; did you mean sources.memory([...])?"
    if type(given).__name__ == "DataFrame" or hasattr(given, "to_batches"):
        return "; did you mean sources.dataframe(...)?"
    return "; see headrace.sources"


def sink_meant(given: Any) -> str:
    """A hint about what was probably meant by an argument that is not a sink."""
    if isinstance(given, str | os.PathLike):
        path = os.fspath(given)
        kind = _kind(path)
        return f"; did you mean sinks.{'jsonl' if kind == 'text' else kind}({path!r})?"
    if given is print:
        return "; did you mean sinks.console()?"
    if callable(given):
        return "; did you mean sinks.foreach(f), with f(rows, epoch)?"
    return "; see headrace.sinks"


def _kind(path: Any) -> str:
    return _KINDS.get(os.path.splitext(str(path))[1].lower(), "jsonl")
