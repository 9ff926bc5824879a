"""Where records come from.

`text jsonl csv parquet` read files, fixed sets or directories that keep growing;
`dataframe` any DataFrame, streaming ones included; `generate` makes records from a
seed; `memory` has them in a list. For a system that is not here, extend `Source`:
its contract, with the traps, is written in `headrace.model.source`.
"""

from headrace.model.source import Range, Reading, Rejected, Source, Timing, Workspace
from headrace.sources.files.csv_rows import csv
from headrace.sources.files.json_lines import jsonl
from headrace.sources.files.parquet_rows import parquet
from headrace.sources.files.text_lines import text
from headrace.sources.generated import generate
from headrace.sources.in_memory import memory
from headrace.sources.spark.dataframes import dataframe

__all__ = [
    "csv",
    "dataframe",
    "generate",
    "jsonl",
    "memory",
    "parquet",
    "text",
    "Range",
    "Reading",
    "Rejected",
    "Source",
    "Timing",
    "Workspace",
]
