"""A replay as text: one block of lines for each hook call, then the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.engine.replay.difference import Difference
from headrace.engine.replay.replay import Replay
from headrace.model.values.time import show_instant
from headrace.worker.watching.asked import Asked
from headrace.worker.watching.hook_recorder import TABLE, HookCall

WIDTH = 160
"""How many characters of one value are shown."""


def call_lines(call: HookCall) -> Iterator[str]:
    """The lines for one hook call."""
    key = "" if call.key is None else f" {call.key!r}"
    yield f"{call.computation}{key}  {_cause(call)}"
    for name in dict.fromkeys([*call.before, *call.after]):
        was = _short(call.before[name]) if name in call.before else "nothing"
        now = _short(call.after[name]) if name in call.after else "nothing"
        yield f"    {name}: {was} -> {now}"
    for asked in call.asked:
        yield f"    asked {asked.what}: {_answer(asked)}"
    for made in call.produced:
        at = "" if made.timestamp is None else f" at {show_instant(made.timestamp)}"
        yield f"    produced to {made.stream}{at}: {_short(made.value)}"
    for timer in call.timers:
        what = "hold" if timer.clock == "hold" else f"{timer.clock} timer"
        tag = "" if timer.tag in (None, "") else f" {timer.tag!r}"
        done = "removed" if timer.at is None else f"set to {show_instant(timer.at)}"
        yield f"    {what}{tag} {done}"
    if call.error is not None:
        yield f"    raised {_cut(call.error)}"


def head_line(replay: Replay) -> str:
    """The line that says which epoch was replayed."""
    return (
        f"Pipeline {replay.pipeline!r}, epoch {replay.epoch}: {replay.records:,} records, planned "
        f"{show_instant(replay.wall)}"
    )


def verdict_lines(replay: Replay) -> Iterator[str]:
    """Whether the replay gave the same result, and if not, where it differs."""
    if replay.equal:
        yield f"Epoch {replay.epoch} made what its commit says."
        return
    count = len(replay.differences)
    yield f"Epoch {replay.epoch} did not make what its commit says; {count} units of work differ:"
    for found in replay.differences:
        yield from difference_lines(found)


def difference_lines(found: Difference) -> Iterator[str]:
    """The lines for one unit of work that differs."""
    slot = "" if found.slot is None else f", slot {found.slot}"
    yield f"{found.computation}{slot} ({found.label}):"
    for detail in found.details or ["what it sends on differs"]:
        yield f"    {detail}"
    if found.repeats:
        return
    yield (
        "    Two replays differ from each other, so the code is not deterministic: does it call "
        "random() or the clock, depend on a set's order, or share state between keys? Use "
        "ctx.random, ctx.now() and declared fields."
    )
    for title, call in (("The first call that shows it", found.call), ("Once more", found.other)):
        if call is not None:
            yield f"    {title}:"
            yield from (f"        {line}" for line in call_lines(call))


def _cause(call: HookCall) -> str:
    at = "" if call.timestamp is None else show_instant(call.timestamp)
    if call.kind == TABLE:
        return f"table of {call.rows:,} records, first: {_short(call.value[:1])}"
    if call.tag is not None or call.clock:
        tag = "" if call.tag in (None, "") else f" {call.tag!r}"
        return f"{call.clock} timer{tag} at {at}"
    late = ", late" if call.late else ""
    return f"record of {call.stream} at {at}{late}: {_short(call.value)}"


def _answer(asked: Asked) -> str:
    if asked.failure is not None:
        return f"failed: {_cut(asked.failure)}"
    found = asked.answer
    if isinstance(found, dict) and {"status", "body"} <= set(found):
        return f"{found['status']} {_short(found['body'])}"
    return _short(found)


def _short(value: Any) -> str:
    return _cut(repr(value))


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."
