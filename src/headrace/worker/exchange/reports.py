"""Reports: one per unit of work, errors carried as data.

A report holds nothing that differs between two honest attempts, timings least of all.
"""

from __future__ import annotations

import msgspec

from headrace.errors import HeadraceError
from headrace.model.values.shown import encodable
from headrace.plan.epoch import Report
from headrace.plan.watermarks import UNBOUNDED

_decoder = msgspec.msgpack.Decoder(Report)


def encode_report(report: Report) -> bytes:
    """For the wire."""
    return msgspec.msgpack.encode(report)


def decode_report(data: bytes) -> Report:
    """From the wire."""
    return _decoder.decode(data)


def failed(label: str, host: str, error: HeadraceError) -> Report:
    """The report of work that could not be done."""
    return Report(
        label=label,
        host=host,
        digest="",
        mark=UNBOUNDED,
        saw={},
        error=type(error).__name__,
        message=encodable(str(error)),
    )
