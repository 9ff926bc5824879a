"""Headrace: stateful stream processing in Python that runs on Apache Spark.

Users write small keyed computations. Headrace keeps their state, fires their timers and gives every
record its effect exactly once.
"""

from headrace import sinks, sources
from headrace.engine.commands import Remote
from headrace.engine.job import Job
from headrace.engine.pipeline import Pipeline
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.engine.replay.replay import Replay, replay
from headrace.errors import (
    CallUncertain,
    CorruptCheckpoint,
    EpochFailed,
    Fenced,
    HeadraceError,
    IncompatibleState,
    InvalidDuration,
    InvalidPipeline,
    InvalidRecord,
    NondeterministicCode,
    ServiceError,
    SinkError,
    SourceError,
    SparkError,
    StoreError,
    Unheard,
    UserCodeError,
)
from headrace.model.computation import Computation
from headrace.model.context import Context, TableContext
from headrace.model.map import Map
from headrace.model.record import Record, Timer
from headrace.model.services import Response, service
from headrace.model.state import state
from headrace.model.values.time import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from headrace.operators.joins.bounds import interval
from headrace.operators.windows.hopping import hopping
from headrace.operators.windows.same_window import same_window
from headrace.operators.windows.session import session
from headrace.operators.windows.sliding import sliding
from headrace.operators.windows.tumbling import tumbling
from headrace.operators.windows.whole import whole
from headrace.operators.windows.window import Window, every
from headrace.pipeline.fluent import agg
from headrace.pipeline.fluent.stream import KeyedStream, Stream
from headrace.pipeline.graph.graph import shed, to
from headrace.plan.elastic.settings import Scale
from headrace.plan.listener import Listener
from headrace.plan.progress import EpochProgress, Notice, RunSummary, Status
from headrace.sinks.stored.output import Output, OutputEpoch, read_output

__version__ = "0.1.0"

__all__ = [
    "DAY",
    "HOUR",
    "MILLISECOND",
    "MINUTE",
    "SECOND",
    "CallUncertain",
    "Checkpoint",
    "Computation",
    "Context",
    "CorruptCheckpoint",
    "EpochFailed",
    "EpochProgress",
    "Fenced",
    "HeadraceError",
    "IncompatibleState",
    "InvalidDuration",
    "InvalidPipeline",
    "InvalidRecord",
    "Job",
    "KeyedStream",
    "Listener",
    "Map",
    "NondeterministicCode",
    "Notice",
    "Output",
    "OutputEpoch",
    "Pipeline",
    "Record",
    "Replay",
    "Response",
    "Remote",
    "RunSummary",
    "Scale",
    "ServiceError",
    "SinkError",
    "SourceError",
    "SparkError",
    "Status",
    "StoreError",
    "Stream",
    "TableContext",
    "Timer",
    "Unheard",
    "UserCodeError",
    "Window",
    "agg",
    "every",
    "hopping",
    "interval",
    "read_output",
    "replay",
    "same_window",
    "service",
    "session",
    "shed",
    "sinks",
    "sliding",
    "sources",
    "state",
    "to",
    "tumbling",
    "whole",
]
