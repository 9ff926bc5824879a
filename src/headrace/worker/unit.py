"""One unit of work, from its first step to its report.

1. Read or run: read the records of a range, or run the hooks of a slot.
2. Fuse: run the keyless computations of this host over the rows that were produced.
3. Route: send rows to the slots of keyed consumers, and feedback to the outbox. Records whose key
   cannot be extracted become dead letters. These are rows too, so steps 2 and 3 repeat for them.
4. Stage: encode the rows for sinks, and write them unless they ride in the report.
5. Close: compute the digest of all output, and add the unit to the control rows of its task.

A `HeadraceError` becomes a report. Any other error is a bug, and fails the task.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from headrace.errors import DeltaMissing, HeadraceError
from headrace.model.values.shown import encodable
from headrace.plan.epoch import CARRIED, Report
from headrace.plan.units import TORN
from headrace.plan.watermarks import UNBOUNDED
from headrace.worker.exchange.controls import ControlRows
from headrace.worker.exchange.emitter import Emitter
from headrace.worker.exchange.envelope import REPORT, Header, encode_report
from headrace.worker.exchange.inputs import Torn
from headrace.worker.exchange.routes import route
from headrace.worker.keyless import run_fused

Work = Callable[[], Report]
"""Step 1. Its report lacks only the results of the steps after it."""


def run_unit(
    emitter: Emitter, number: int, controls: ControlRows, work: Work
) -> list[tuple[Header, bytes]]:
    """Runs a unit of work of task `number`; returns the rows that it sends, its report last.

    A unit that fails is not in the control rows: its consumers then know that its output is
    missing.
    """
    try:
        rows, report = _run(emitter, controls, work)
    except Torn as torn:
        rows, report = [], _failed(emitter, TORN, torn)
    except HeadraceError as error:
        rows, report = [], _failed(emitter, type(error).__name__, error)
    header = Header(emitter.runtime.topology.depth + 1, number, REPORT, emitter.label)
    return [*rows, (header, encode_report(report))]


def _run(
    emitter: Emitter, controls: ControlRows, work: Work
) -> tuple[list[tuple[Header, bytes]], Report]:
    done = work()
    run_fused(emitter)
    while leaving := emitter.take_rows():
        for stream, rows in leaving:
            route(emitter, stream, rows)
        if emitter.has_rows:
            run_fused(emitter)
    emitter.stage()
    end, sent = emitter.close(done.mark)
    controls.add(end, (header for header, _ in sent))
    if done.load is not None:
        carried = sum(file.rows for file in emitter.outbox if file.kind == CARRIED)
        sent_on = replace(done.load, bytes_out=emitter.bytes_out, carried=carried)
        done = replace(done, load=sent_on)
    report = replace(
        done,
        digest=end.digest,
        staged=tuple(emitter.staged),
        outbox=tuple(emitter.outbox),
        riders=emitter.riders,
        counters=emitter.counters,
        determinants=emitter.answers,
        asks=emitter.asks,
    )
    return sent, report


def _failed(emitter: Emitter, kind: str, error: Exception) -> Report:
    """The report of a unit of work that failed."""
    return Report(
        label=emitter.label,
        host=emitter.host,
        digest="",
        mark=UNBOUNDED,
        error=kind,
        message=encodable(str(error)),
        missing=tuple(error.segments) if isinstance(error, DeltaMissing) else (),
    )
