"""Headrace: stateful stream processing in Python that runs on Apache Spark.

Users write small keyed computations. Headrace keeps their state, fires their timers and gives every
record its effect exactly once.

Public names are imported when they are first used: a Python worker needs a third of them, and every
worker that Spark starts waits for its imports.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace.model.state import state

if TYPE_CHECKING:
    from headrace import formats, sinks, sources
    from headrace.engine.commands import Remote
    from headrace.engine.job import Job
    from headrace.engine.pipeline import Pipeline
    from headrace.engine.primitives.backups.backup import Backup
    from headrace.engine.primitives.parts import StatePart
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
    from headrace.model.values.time import DAY, HOUR, MILLISECOND, MINUTE, SECOND
    from headrace.observe.metrics.prometheus import PrometheusListener
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
    from headrace.plan.progress import CheckpointProgress, EpochProgress, Notice, RunSummary, Status
    from headrace.sinks.stored.output import Output, OutputEpoch, read_output

__version__ = "0.1.0"

__all__ = [
    "DAY",
    "HOUR",
    "MILLISECOND",
    "MINUTE",
    "SECOND",
    "Backup",
    "CallUncertain",
    "Checkpoint",
    "CheckpointProgress",
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
    "PrometheusListener",
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
    "StatePart",
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
    "formats",
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

# The room of the same name first: its first import replaces what the package calls `state`.
_function = state
import_module("headrace.state")
state = _function

_MODULES = {"agg", "formats", "sinks", "sources"}
_HOMES = {
    "Backup": "headrace.engine.primitives.backups.backup",
    "CallUncertain": "headrace.errors",
    "Checkpoint": "headrace.engine.replay.checkpoint",
    "CheckpointProgress": "headrace.plan.progress",
    "Computation": "headrace.model.computation",
    "Context": "headrace.model.context",
    "CorruptCheckpoint": "headrace.errors",
    "DAY": "headrace.model.values.time",
    "EpochFailed": "headrace.errors",
    "EpochProgress": "headrace.plan.progress",
    "Fenced": "headrace.errors",
    "HOUR": "headrace.model.values.time",
    "HeadraceError": "headrace.errors",
    "IncompatibleState": "headrace.errors",
    "InvalidDuration": "headrace.errors",
    "InvalidPipeline": "headrace.errors",
    "InvalidRecord": "headrace.errors",
    "Job": "headrace.engine.job",
    "KeyedStream": "headrace.pipeline.fluent.stream",
    "Listener": "headrace.plan.listener",
    "MILLISECOND": "headrace.model.values.time",
    "MINUTE": "headrace.model.values.time",
    "Map": "headrace.model.map",
    "NondeterministicCode": "headrace.errors",
    "Notice": "headrace.plan.progress",
    "Output": "headrace.sinks.stored.output",
    "OutputEpoch": "headrace.sinks.stored.output",
    "Pipeline": "headrace.engine.pipeline",
    "PrometheusListener": "headrace.observe.metrics.prometheus",
    "Record": "headrace.model.record",
    "Remote": "headrace.engine.commands",
    "Replay": "headrace.engine.replay.replay",
    "Response": "headrace.model.services",
    "RunSummary": "headrace.plan.progress",
    "SECOND": "headrace.model.values.time",
    "Scale": "headrace.plan.elastic.settings",
    "ServiceError": "headrace.errors",
    "SinkError": "headrace.errors",
    "SourceError": "headrace.errors",
    "SparkError": "headrace.errors",
    "StatePart": "headrace.engine.primitives.parts",
    "Status": "headrace.plan.progress",
    "StoreError": "headrace.errors",
    "Stream": "headrace.pipeline.fluent.stream",
    "TableContext": "headrace.model.context",
    "Timer": "headrace.model.record",
    "Unheard": "headrace.errors",
    "UserCodeError": "headrace.errors",
    "Window": "headrace.operators.windows.window",
    "agg": "headrace.pipeline.fluent.agg",
    "every": "headrace.operators.windows.window",
    "formats": "headrace.formats",
    "hopping": "headrace.operators.windows.hopping",
    "interval": "headrace.operators.joins.bounds",
    "read_output": "headrace.sinks.stored.output",
    "replay": "headrace.engine.replay.replay",
    "same_window": "headrace.operators.windows.same_window",
    "service": "headrace.model.services",
    "session": "headrace.operators.windows.session",
    "shed": "headrace.pipeline.graph.graph",
    "sinks": "headrace.sinks",
    "sliding": "headrace.operators.windows.sliding",
    "sources": "headrace.sources",
    "to": "headrace.pipeline.graph.graph",
    "tumbling": "headrace.operators.windows.tumbling",
    "whole": "headrace.operators.windows.whole",
}
"""Public name -> the module it lives in, or the module that it is."""


def __getattr__(name: str) -> Any:
    """Imports a public name that is used for the first time."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(home)
    value = module if name in _MODULES else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
