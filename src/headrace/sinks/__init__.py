"""Sinks, where streams leave: files, a function, memory, the console; and base classes.

A sink here applies an epoch once, however often the epoch is delivered. `foreach` and `console`
are the exceptions: they may repeat an epoch after a crash, and their documentation says so.
"""

from headrace.model.sink import Delivery, Opening, Part, Sink
from headrace.sinks.at_least_once import AtLeastOnceSink
from headrace.sinks.console import console
from headrace.sinks.csv import csv
from headrace.sinks.foreach import foreach
from headrace.sinks.jsonl import jsonl
from headrace.sinks.memory import memory
from headrace.sinks.parquet import parquet

__all__ = [
    "jsonl",
    "csv",
    "parquet",
    "foreach",
    "memory",
    "console",
    "Sink",
    "AtLeastOnceSink",
    "Part",
    "Delivery",
    "Opening",
]
