"""Sinks, where streams leave: files, tables, topics, a function, memory; and base classes.

A sink here applies an epoch once, however often the epoch is delivered. `foreach` and `console`
are the exceptions: they may repeat an epoch after a crash, and their documentation says so.
"""

from headrace.model.sink import Delivery, Opening, Part, Sink
from headrace.sinks.at_least_once import AtLeastOnceSink
from headrace.sinks.console import console
from headrace.sinks.csv import csv
from headrace.sinks.foreach import foreach
from headrace.sinks.jsonl import jsonl
from headrace.sinks.kafka.sink import kafka
from headrace.sinks.memory import memory
from headrace.sinks.parquet import parquet
from headrace.sinks.rows_file import dump as dump_rows
from headrace.sinks.rows_file import load_parts as load_rows
from headrace.sinks.tables.delta import delta
from headrace.sinks.tables.iceberg import iceberg
from headrace.sinks.tables.postgres import postgres

__all__ = [
    "jsonl",
    "csv",
    "parquet",
    "postgres",
    "delta",
    "iceberg",
    "kafka",
    "foreach",
    "memory",
    "console",
    "Sink",
    "AtLeastOnceSink",
    "dump_rows",
    "load_rows",
    "Part",
    "Delivery",
    "Opening",
]
