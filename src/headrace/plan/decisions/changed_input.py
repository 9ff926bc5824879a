"""Input that has changed since it was read: refused, reported, or accepted by name. Pure.

The ledger stores what every split has read (`Seen`). A start compares all of it closely. During a
run, listed splits are compared by size and modification time. A change is

- an error if reading continues in the changed file, or if files must be complete when they appear
  (an unbounded source). The error is raised at every start, until the old file is back or its name
  is given to `--accept-changed`;
- only reported if the changed file was read to its end and the source is bounded.

An accepted change is written as an entry of the log, so that every later driver knows of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

import msgspec

from headrace.errors import SourceError
from headrace.model.source import Change, Seen, Source
from headrace.model.values.time import BEGINNING
from headrace.plan.epoch import Plan, SplitState
from headrace.plan.watermarks import Mark

States = dict[str, dict[str, SplitState]]

FINISHED = SplitState(0, Mark(None, BEGINNING), finished=True)
"""The state of a split that has left the ledger."""
UNREAD = SplitState(0, Mark(None, BEGINNING))
"""The state of a split of which nothing was read."""


class Compared(msgspec.Struct):
    """The result of a comparison."""

    states: States = msgspec.field(default_factory=dict)
    """Splits whose stored state is replaced: accepted, or the same bytes with another time."""
    notices: list[str] = msgspec.field(default_factory=list)
    accepted: set[str] = msgspec.field(default_factory=set)
    """The names given to `--accept-changed` that were used."""

    def remember(self, stream: str, split: str, state: SplitState) -> None:
        """Notes that the state of a split is replaced."""
        self.states.setdefault(stream, {})[split] = state


def compare_split(
    stream: str,
    source: Source,
    split: str,
    state: SplitState,
    read: Mapping[str, Seen],
    accept: Iterable[str],
    found: Compared,
) -> None:
    """Compares what was read of a split, by the names of its parts; raises if it is refused.

    `state` is the split's state in the ledger, where some of its parts may not be listed any more.
    """
    for name, seen in read.items():
        now = source.compare(split, name, seen, closely=True)
        if now is None or now == seen:
            continue
        if isinstance(now, Seen):
            state = _with(state, name, now)
            found.remember(stream, split, state)
            continue
        named = [given for given in accept if _means(given, stream, now)]
        if named:
            found.accepted.update(named)
            found.notices.append(f"stream {stream!r}: {now.what} {now.how}, and that is accepted")
            position, now = source.accept(split, name, seen)
            state = _moved(_with(state, name, now), position, finished=now.whole and not name)
            found.remember(stream, split, state)
        elif now.told_only or (seen.whole and source.bounded):
            found.notices.append(told(stream, now, seen))
        else:
            raise refused(stream, now, seen)


def refused(stream: str, change: Change, seen: Seen) -> SourceError:
    """The error for a refused change, with the possible solutions."""
    name = change.name or stream
    if seen.whole:
        when = "since it was read to its end, and what it holds now is not read"
        why = ": what is read while it appears must appear complete, by a rename"
        then = "it then counts as read as it is now"
    else:
        when, why = f"since it was read up to {seen.read:,}", ""
        then = "reading then goes on at the old position of what is there now"
    then = change.then or then
    return SourceError(
        f"stream {stream!r}: {change.what} {change.how} {when}{why}. {_capital(change.undo)}; or "
        f"start with --accept-changed {name} (accept_changed=[{name!r}] in Python): {then}; or "
        "start a new checkpoint"
    )


def told(stream: str, change: Change, seen: Seen) -> str:
    """The notice about a change that is not refused."""
    name = change.name or stream
    if change.told_only:
        return f"stream {stream!r}: {change.what} {change.how}; {change.undo}"
    grows = "; for input that grows, add files (watch=True)" if change.name else ""
    return (
        f"stream {stream!r}: {change.what} {change.how} since it was read to its end, and what it "
        f"holds now is not read. A new checkpoint reads it{grows}; --accept-changed {name} "
        "(accept_changed=) takes it as read as it is now"
    )


def reads_from(plan: Plan, states: States) -> bool:
    """Whether a plan reads from some of these splits."""
    reads = (read for task in plan.reads for read in task)
    return any(read.split in states.get(read.stream, {}) for read in reads)


def _with(state: SplitState, name: str, seen: Seen) -> SplitState:
    return msgspec.structs.replace(state, seen={**state.seen, name: seen})


def _moved(state: SplitState, position: int, *, finished: bool) -> SplitState:
    """Where the split continues, never before its old position; the file may end there."""
    position = max(position, state.position)
    if not finished:
        return msgspec.structs.replace(state, position=position)
    mark = Mark(None, state.mark.newest)
    return msgspec.structs.replace(state, position=position, mark=mark, finished=True)


def _means(given: str, stream: str, change: Change) -> bool:
    """Whether a name given to `--accept-changed` names the changed file or stream."""
    if not change.name:
        return given == stream
    return given == change.name or os.path.abspath(given) == change.name


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
