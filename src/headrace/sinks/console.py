"""Rows on standard output, one line each. A crash may print an epoch again."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.errors import InvalidPipeline, SinkError
from headrace.model.sink import Delivery
from headrace.model.values.rows import Rows
from headrace.sinks.at_least_once import AtLeastOnceSink
from headrace.sinks.jsonl import with_digits

_encoder = msgspec.json.Encoder()


def console(*, limit: int | None = 20) -> Console:
    """Prints each row as a line of JSON, at most `limit` of an epoch (None: all)."""
    return Console(limit=limit)


class Console(AtLeastOnceSink):
    """The sink behind `console`."""

    def __init__(self, *, limit: int | None = 20) -> None:
        if limit is not None and limit < 0:
            raise InvalidPipeline(f"console: limit={limit} is negative; None prints every row")
        self.limit = limit

    def hand_over(self, parts: Sequence[Rows], delivery: Delivery) -> None:
        _show(self._lines(parts))

    def _lines(self, parts: Sequence[Rows]) -> list[str]:
        count = sum(len(rows) for rows in parts)
        left = count if self.limit is None else min(count, self.limit)
        hidden = count - left
        lines: list[str] = []
        for rows in parts:
            lines += [_line(value) for value in rows.slice(0, left).values()]
            left -= min(left, len(rows))
        return [*lines, f"… and {hidden:,} more"] if hidden else lines


def _line(value: Any) -> str:
    try:
        return _encoder.encode(with_digits(value)).decode()
    except (TypeError, ValueError, OverflowError):
        return repr(value).replace("\n", "\\n")


def _show(lines: list[str]) -> None:
    if not lines:
        return
    out = sys.stdout
    encoding = getattr(out, "encoding", None) or "utf-8"
    text = "\n".join(lines) + "\n"
    try:
        # A terminal that cannot show a character must not stop a pipeline.
        out.write(text.encode(encoding, "backslashreplace").decode(encoding))
        out.flush()
    except OSError as error:
        raise SinkError(f"standard output cannot be written: {error}") from error
