"""Where streams leave: files, a function, memory, the console; and the contract for your own.

Every sink here takes an epoch once, however often it is delivered; `foreach` and
`console` may repeat an epoch after a crash, and say so.
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
