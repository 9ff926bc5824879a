"""Compares the contract in force with that of new code (L6, L7, L8).

`compare` answers three questions before anything starts: may the new code take over at all
(`refusals`), what should a person look at (`doubts`), and what would a way back mean (`mode`).

- forward: the former code can read everything that the new code writes. Its outputs are delivered
  at once, and a rollback goes on from the last commit.
- restore: anything else. Outputs are held until the deploy is confirmed, and a rollback goes back
  to the state at the hand-over.

Each refusal is one sentence and ends with the flag by which a person says what is meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from headrace.pipeline.graph.graph import AT_MOST_ONCE
from headrace.plan.deploy.contract import ComputationContract, Contract

FORWARD, RESTORE = "forward", "restore"

_LAYOUT = ("ordered", "clock", "ttl")
"""Flags that decide how cells, timers and waiting records are stored, or when they expire."""


class Facts(msgspec.Struct, frozen=True):
    """What a ledger says about the state that the new code would find."""

    with_state: frozenset[str] = frozenset()
    """Computations that have cells."""
    waiting: frozenset[tuple[str, str]] = frozenset()
    """(consumer, stream) of feedback rows that are not delivered yet."""
    unsettled: bool = False
    """Whether causes of calls by voided plans may occur again."""


class Meant(msgspec.Struct, frozen=True):
    """What a person says is meant, by name."""

    rekeyed: Mapping[str, str] = {}
    """Computation -> "drop": its state belongs to other keys and is given up."""
    calls: str = ""
    """"stay": calls that were made are not undone by a rollback."""
    moved: frozenset[str] = frozenset()
    """Streams whose source is meant to have another identity."""
    mode: str = ""
    """A mode that is asked for; "" leaves it to the contracts."""


NOTHING_KNOWN, NOTHING_SAID = Facts(), Meant()


class Comparison(msgspec.Struct, frozen=True):
    """The outcome of `compare`."""

    mode: str
    refusals: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    """Computations, sources and sinks that are new: they start at the present."""
    removed: tuple[str, ...] = ()
    """The same that are no longer there: their state stays until it is dropped by name."""
    renamed: dict[str, str] = {}
    """Former name -> new name of computations that keep their state."""
    drain: tuple[str, ...] = ()
    """Consumers whose feedback rows must have been delivered before the hand-over."""
    reasons: tuple[str, ...] = ()
    """Why the mode is not `forward`."""


def compare(
    old: Contract, new: Contract, facts: Facts = NOTHING_KNOWN, meant: Meant = NOTHING_SAID
) -> Comparison:
    """Compares the code in force with new code."""
    renamed = renames(old, new, facts)
    pairs = list(pairs_of(old, new, renamed))
    drain = tuple(sorted(_to_drain(old, new, renamed)))
    reasons = tuple(_why_restore(old, new, renamed, pairs))
    mode = meant.mode or (RESTORE if reasons else FORWARD)
    refusals = [
        *_other_pipeline(old, new),
        *_names(old, new, facts),
        *(text for was, now in pairs for text in _state(was, now, facts, meant)),
        *(text for was, now in pairs for text in _calls(was, now, facts)),
        *_ends(old, new, meant),
        *_undrained(old, drain, facts),
        *_modes(old, new, mode, reasons, meant),
    ]
    doubts = [text for was, now in pairs for text in _doubts(was, now, facts, meant)]
    added, removed = _added(old, new, renamed), _removed(old, new, renamed)
    doubts += [
        f"{name} is new and starts at the present: it has no state, and its first windows are "
        "partial"
        for name in new.keyed
        if name not in old.computations and name not in renamed.values()
    ]
    doubts += [
        f"the state of {name} stays until it is dropped by name: headrace state drop"
        for name in old.keyed
        if name not in new.computations and name not in renamed and name in facts.with_state
    ]
    return Comparison(mode, tuple(refusals), tuple(doubts), added, removed, renamed, drain, reasons)


def renames(old: Contract, new: Contract, facts: Facts) -> dict[str, str]:
    """Former name -> new name, by aliases: the first alias that is left without an owner counts."""
    found: dict[str, str] = {}
    for name, now in new.keyed.items():
        if name in old.computations or name in facts.with_state:
            continue
        for alias in now.aliases:
            known = alias in old.keyed or alias in facts.with_state
            if known and alias not in new.computations and alias not in found:
                found[alias] = name
                break
    return found


def pairs_of(
    old: Contract, new: Contract, renamed: Mapping[str, str]
) -> Iterator[tuple[ComputationContract, ComputationContract]]:
    """Each computation of the old code that goes on, and what it becomes."""
    for name, was in old.computations.items():
        now = new.computations.get(renamed.get(name, name))
        if now is not None:
            yield was, now


# What is refused ----------------------------------------------------------


def _other_pipeline(old: Contract, new: Contract) -> Iterator[str]:
    if old.pipeline != new.pipeline:
        yield (
            f"the checkpoint belongs to pipeline {old.pipeline!r}, and this is {new.pipeline!r}: "
            "give it a checkpoint of its own"
        )


def _names(old: Contract, new: Contract, facts: Facts) -> Iterator[str]:
    """Aliases that say nothing certain."""
    claims = Counter(alias for now in new.keyed.values() for alias in now.aliases)
    for alias, count in sorted(claims.items()):
        known = alias in old.computations or alias in facts.with_state
        if count > 1 and known:
            owners = " and ".join(n for n, now in new.keyed.items() if alias in now.aliases)
            yield f"{owners} both have the alias {alias!r}: keep it in one of them"
    for name, now in new.keyed.items():
        if name not in facts.with_state:
            continue
        for alias in now.aliases:
            if alias in facts.with_state and alias not in new.computations:
                yield (
                    f"computation {name!r} has state of its own, and its alias {alias!r} has state "
                    f"too: take the alias away, or drop one of them: headrace state drop {alias}"
                )


def _state(
    was: ComputationContract, now: ComputationContract, facts: Facts, meant: Meant
) -> Iterator[str]:
    """State that the new code cannot read, or would misread."""
    if not was.keyed or was.name not in facts.with_state or _is_dropped(was, now, meant):
        return
    where = f"computation {now.name!r}"
    if not now.keyed:
        yield f"{where} has state, and has no key in the new code: give the new one another name"
        return
    if now.version < was.version:
        yield (
            f"{where} has state of version {was.version}, and the new code is version "
            f"{now.version}: deploy code with version={was.version} or higher"
        )
    elif now.version == was.version:
        for field, kind in now.fields.items():
            if was.fields.get(field, kind) != kind:
                yield (
                    f"{where}: field {field!r} is stored as {was.fields[field]} and is {kind} in "
                    f"the new code: raise version= to {was.version + 1} and give it migrate()"
                )
    if was.checksum != now.checksum:
        yield (
            f"{where} has windows or aggregates of another meaning than its stored ones: give the "
            f"new one another name, or say --rekeyed {now.name}=drop to lose the open ones"
        )
    before = {given.stream: given.key for given in was.inputs}
    for given in now.inputs:
        if before.get(given.stream, given.key) != given.key:
            yield (
                f"{where} takes its key of {given.stream!r} from {given.key}, and its state was "
                f"written under {before[given.stream]}: give the new one another name, or say "
                f"--rekeyed {now.name}=drop to lose its state"
            )
    if was.flags.get("ordered") != now.flags.get("ordered"):
        yield (
            f"{where} changes ordered=, and records may wait in its state: give the new one "
            f"another name, or say --rekeyed {now.name}=drop to lose its state"
        )


def _is_dropped(was: ComputationContract, now: ComputationContract, meant: Meant) -> bool:
    return "drop" in (meant.rekeyed.get(now.name), meant.rekeyed.get(was.name))


def _calls(was: ComputationContract, now: ComputationContract, facts: Facts) -> Iterator[str]:
    if was.calls and now.calls and was.first_name != now.first_name and facts.unsettled:
        yield (
            f"computation {was.name!r} makes calls that must not be repeated, and calls of "
            f"voided plans are not settled: make {was.first_name!r} the first of the aliases "
            f"of {now.name!r}, or deploy when the pipeline has gone past them"
        )


def _ends(old: Contract, new: Contract, meant: Meant) -> Iterator[str]:
    """Sources and sinks that are others than their names say."""
    for stream, was in old.sources.items():
        now = new.sources.get(stream)
        if now is not None and now.identity != was.identity and stream not in meant.moved:
            yield (
                f"stream {stream!r} is read from {was.identity}, and in the new code from "
                f"{now.identity}: give the new one another name, or say --moved {stream} if it is "
                "the same data at another place"
            )
    places = {was.identity: name for name, was in old.sinks.items() if was.identity}
    for name, now_sink in new.sinks.items():
        owner = places.get(now_sink.identity)
        if owner is not None and owner != name and owner in new.sinks:
            yield f"sink {name!r} writes to {now_sink.identity}, which belongs to sink {owner!r}"


def _to_drain(old: Contract, new: Contract, renamed: Mapping[str, str]) -> Iterator[str]:
    """Consumers of feedback that change in a way that waiting rows would not survive."""
    for name, was in old.keyed.items():
        streams = [given for given in was.inputs if given.stream in old.feedback]
        if not streams:
            continue
        now = new.computations.get(renamed.get(name, name))
        keys = {g.stream: g.key for g in now.inputs} if now is not None and now.keyed else {}
        kept = all(
            keys.get(given.stream) == given.key and given.stream in new.feedback
            for given in streams
        )
        if not kept or name in renamed:
            yield name


def _undrained(old: Contract, drain: tuple[str, ...], facts: Facts) -> Iterator[str]:
    """A loop that feeds itself is drained only if its rows come to an end."""
    for consumer, stream in sorted(facts.waiting):
        was = old.keyed.get(consumer)
        if consumer in drain and was is not None and stream in was.outputs.values():
            yield (
                f"feedback rows of {stream!r} wait for {consumer!r}, which feeds itself and may "
                "never drain: keep the consumer as it is, or deploy when none waits"
            )


def _modes(
    old: Contract, new: Contract, mode: str, reasons: tuple[str, ...], meant: Meant
) -> Iterator[str]:
    if mode == FORWARD and reasons:
        yield f"--mode forward is not possible: {reasons[0]}"
    if mode != RESTORE:
        return
    why = f" ({reasons[0]})" if reasons else ""
    calling = sorted({n for c in (old, new) for n, found in c.computations.items() if found.calls})
    if calling and meant.calls != "stay":
        yield (
            f"{', '.join(calling)} makes calls that must not be repeated, and a rollback would go "
            f"back to the state before them{why}: say --calls stay if what was sent may stay sent"
        )
    for stream, now in new.sources.items():
        if not now.rereads:
            yield (
                f"{now.identity} of stream {stream!r} cannot read again what was committed, and a "
                f"rollback would need that{why}: deploy a change that the former code can read"
            )
    if AT_MOST_ONCE in (old.guarantee, new.guarantee):
        yield (
            "an at-most-once pipeline reads no record twice, and a rollback would do that"
            f"{why}: stop it and start the new code with --replace"
        )


# What a rollback means ----------------------------------------------------


def _why_restore(
    old: Contract,
    new: Contract,
    renamed: Mapping[str, str],
    pairs: list[tuple[ComputationContract, ComputationContract]],
) -> Iterator[str]:
    """Why the former code could not go on from what the new code has written."""
    for former, name in renamed.items():
        yield f"{former!r} is called {name!r} now"
    for was, now in pairs:
        if not was.keyed and not now.keyed:
            continue
        where = f"computation {now.name!r}"
        if was.keyed != now.keyed:
            yield f"{where} {'gets' if now.keyed else 'loses'} its key"
        if now.version != was.version:
            yield f"{where} has version {now.version}, before it was {was.version}"
        elif now.fields != was.fields:
            yield f"{where} has other fields"
        if now.checksum != was.checksum:
            yield f"{where} has other windows or aggregates"
        if {g.stream: g.key for g in now.inputs} != {g.stream: g.key for g in was.inputs}:
            yield f"{where} has other inputs or keys"
        flags = {f for f in (*was.flags, *now.flags) if f.startswith("ttl of ")}
        for flag in (*_LAYOUT, *sorted(flags)):
            if was.flags.get(flag) != now.flags.get(flag):
                yield f"{where} has another {flag}"
    for name in old.keyed:
        if name not in new.computations and name not in renamed:
            yield f"computation {name!r} is removed"
    for name in new.keyed:
        is_new = name not in old.computations and name not in renamed.values()
        if is_new and any(given.stream in new.feedback for given in new.keyed[name].inputs):
            yield f"computation {name!r} is new and takes feedback"
    kept = {sink.identity for sink in new.sinks.values() if sink.identity}
    for name, sink in old.sinks.items():
        if name not in new.sinks and sink.identity not in kept:
            yield f"sink {name!r} is removed"
        elif name in new.sinks and new.sinks[name].identity != sink.identity:
            yield f"sink {name!r} writes to another place"
    if set(old.feedback) != set(new.feedback):
        yield "other streams close a cycle"


def _doubts(
    was: ComputationContract, now: ComputationContract, facts: Facts, meant: Meant
) -> Iterator[str]:
    """What a person should look at."""
    if was.name not in facts.with_state or not now.keyed:
        return
    if _is_dropped(was, now, meant):
        yield f"the state of {was.name!r} is dropped, as --rekeyed says"
        return
    texts = {given.stream: (given.key, given.text) for given in was.inputs}
    for given in now.inputs:
        key, text = texts.get(given.stream, (given.key, given.text))
        if key == given.key and text != given.text:
            yield (
                f"computation {now.name!r}: the function that gives its key of {given.stream!r} "
                "has another text: if it gives other keys, records do not find their state"
            )
    for field in was.fields:
        if field not in now.fields and now.version == was.version:
            yield f"computation {now.name!r}: field {field!r} is no longer there; it is lost"


def _added(old: Contract, new: Contract, renamed: Mapping[str, str]) -> tuple[str, ...]:
    known = {*old.computations, *renamed.values()}
    found = [f"computation {name}" for name in new.computations if name not in known]
    found += [f"source {name}" for name in new.sources if name not in old.sources]
    places = {sink.identity for sink in old.sinks.values() if sink.identity}
    found += [
        f"sink {name}"
        for name, sink in new.sinks.items()
        if name not in old.sinks and sink.identity not in places
    ]
    return tuple(found)


def _removed(old: Contract, new: Contract, renamed: Mapping[str, str]) -> tuple[str, ...]:
    kept = {*new.computations, *renamed}
    found = [f"computation {name}" for name in old.computations if name not in kept]
    found += [f"source {name}" for name in old.sources if name not in new.sources]
    places = {sink.identity for sink in new.sinks.values() if sink.identity}
    found += [
        f"sink {name}"
        for name, sink in old.sinks.items()
        if name not in new.sinks and sink.identity not in places
    ]
    return tuple(found)
