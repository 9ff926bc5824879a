"""Sources: where records come from.

- `text`, `jsonl`, `csv`, `parquet` read files: a fixed set, or a directory that keeps growing.
- `kafka` reads topics.
- `dataframe` reads any DataFrame, streaming ones included.
- `then` reads one source to its end, and then another.
- `generate` makes records from a seed; `memory` takes them from a list.

For a system that is not listed here, extend `Source`. `headrace.model.source` states its
contract and the common mistakes.
"""

from headrace.model.source import Range, Reading, Rejected, Source, Timing, Workspace
from headrace.sources.files.csv_rows import csv
from headrace.sources.files.json_lines import jsonl
from headrace.sources.files.parquet_rows import parquet
from headrace.sources.files.text_lines import text
from headrace.sources.generated import generate
from headrace.sources.in_memory import memory
from headrace.sources.joined import then
from headrace.sources.kafka.source import kafka
from headrace.sources.spark.dataframes import dataframe

__all__ = [
    "csv",
    "dataframe",
    "generate",
    "jsonl",
    "kafka",
    "memory",
    "parquet",
    "text",
    "then",
    "Range",
    "Reading",
    "Rejected",
    "Source",
    "Timing",
    "Workspace",
]
