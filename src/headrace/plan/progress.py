"""What a run tells: each committed epoch, what happens in between, how it ended."""

from __future__ import annotations

import msgspec


class EpochProgress(msgspec.Struct, frozen=True):
    """One committed epoch, for progress views and tests."""

    pipeline: str
    epoch: int
    records: int
    """Records read from sources in this epoch."""
    records_total: int
    """Records read since this run began."""
    produced: int
    """Rows that went to sinks in this epoch."""
    seconds: float
    """From plan to commit."""
    watermark: int
    """The lowest input watermark of all computations, microseconds."""
    newest: int
    """The largest timestamp seen so far, microseconds."""
    state_bytes: int
    late: int
    """Late records so far."""
    dead: int
    """Dead letters so far."""
    backlog: int | None
    """Records known to be waiting in the sources, where a source can tell."""
    ended: bool = False
    counts: dict[str, int] = {}
    """`ctx.count` metrics so far, as computation.metric."""


class Notice(msgspec.Struct, frozen=True):
    """What a run says between epochs."""

    pipeline: str
    kind: str
    """away, back (an outage), paused, resumed (as asked), standby, leading, doubt (a mistake?)."""
    text: str


def counted(number: int, what: str) -> str:
    """A number of things, in words."""
    return f"{number:,} {what}{'s' * (number != 1)}"


_ENDINGS = {
    "end": "all input was read",
    "caught_up": "caught up with its input; a new start with the same checkpoint goes on from here",
    "not_needed": "the driver that led has ended; this standby was not needed",
    "stopped": "stopped; a new start with the same checkpoint goes on from here",
}


class RunSummary(msgspec.Struct, frozen=True):
    """How a run ended; `print` it to have that in words."""

    pipeline: str
    epochs: int
    records: int
    late: int
    dead: int
    reason: str
    """"end", "caught_up", "stopped", or "not_needed" for a standby that never led."""
    notes: tuple[str, ...] = ()
    """What the end left behind: timers that did not fire, records that a loop kept, what nobody
    reads."""
    counts: dict[str, int] = {}
    skipped: int = 0
    """About how many records of sources an at-most-once pipeline has skipped after crashes."""
    undelivered: int = 0
    """Rows whose delivery was uncertain and that this run did not deliver again."""

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self, pace: str = "") -> list[str]:
        """The same, line by line; `pace` says how fast it went."""
        lines = [
            f"{self.pipeline}: {_ENDINGS.get(self.reason, self.reason)}.",
            f"{counted(self.records, 'record')} in {counted(self.epochs, 'epoch')}{pace}; "
            f"{self.late:,} late, {counted(self.dead, 'dead letter')}.",
        ]
        lines += [f"  {name}: {count:,}" for name, count in sorted(self.counts.items())]
        lines += [f"Note: {note}" for note in self.notes]
        return lines
