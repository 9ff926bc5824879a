"""Runs S4's operations on every state store, at few and at many keys, and judges the bars.

All stores get the same operations in the same run, and take turns round by round: a machine that
others share changes its speed within seconds, and the reads of a round take less than one.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headrace.bench.backends.bytes_written import measure_bytes
from headrace.bench.backends.rounds import TimedStore
from headrace.bench.backends.stores import NAMES
from headrace.bench.backends.workload import KeySet, Operations
from headrace.bench.frame.bars import Bar
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.rounds import Say
from headrace.bench.servers.processes import CannotHave
from headrace.errors import HeadraceError, StoreError

MANY_KEYS = 1_000_000
OPEN_MS_MAX = 250.0
SPEED_BARS = (
    ("segments", "writes_per_s", 20.0),
    ("segments", "reads_per_s", 3.0),
    ("log", "writes_per_s", 4.85),
    ("log", "reads_per_s", 3.0),
)
"""Against `files`, at the same number of keys."""


def run_backends(
    shapes: Sequence[Operations],
    *,
    names: Sequence[str] = NAMES,
    rounds: int = 5,
    byte_keys: int = MANY_KEYS,
    work_dir: Path | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Measures every store at every number of keys, and returns the JSON document."""
    unknown = set(names) - set(NAMES)
    if unknown:
        raise HeadraceError(f"there is no state store {min(unknown)!r}; there are {list(NAMES)}")
    machine = describe_machine()
    measured: dict[str, dict[str, dict[str, Any]]] = {}
    skipped: dict[str, str] = {}
    for shape in shapes:
        keys = KeySet(shape)
        with ExitStack() as stack:
            timed: dict[str, TimedStore] = {}
            for name in names:
                if name in skipped:
                    continue
                say(f"{name}: {shape.keys:,} keys are written")
                try:
                    timed[name] = TimedStore(name, keys, stack, work_dir)
                except CannotHave as error:
                    skipped[name] = str(error)
                    say(f"{name}: left out: {error}")
            os.sync()  # what was written without a sync does not go to the disk during a round
            gc.freeze()  # a collection would look at all keys, which are the benchmark's own
            stack.callback(gc.unfreeze)
            for number in range(rounds):
                say(f"{shape.keys:,} keys: round {number + 1} of {rounds}")
                for name, store in list(timed.items()):
                    try:
                        store.run_round(number)
                    except StoreError as error:  # its server is gone; the others go on
                        del timed[name]
                        skipped[name] = f"failed with {shape.keys:,} keys: {error}"
                        say(f"{name}: {skipped[name]}")
            for name, store in timed.items():
                measured.setdefault(name, {})[str(shape.keys)] = store.figures()
    wrong = sum(found["wrong_answers"] for every in measured.values() for found in every.values())
    written = measure_bytes(byte_keys, work_dir=work_dir, say=say) if byte_keys else None
    return {
        "benchmark": "backends",
        "workload": {str(shape.keys): asdict(shape) for shape in shapes},
        "rounds": rounds,
        "systems": {name: _system(found) for name, found in measured.items()},
        "skipped": skipped,
        "bytes": written,
        "results_equal": wrong == 0,
        "bars": [bar.as_json(wrong == 0) for bar in _bars(measured, written)],
        "machine": machine,
        "versions": describe_versions(),
    }


def _system(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The figures at the most keys, and those at each number of keys."""
    most = found[max(found, key=int)]
    return {
        "writes_per_s": most["writes_per_s"],
        "reads_per_s": most["reads_per_s"],
        "promise": most["promise"],
        "keys": dict(found),
    }


def _bars(
    measured: Mapping[str, Mapping[str, Mapping[str, Any]]], written: Mapping[str, float] | None
) -> list[Bar]:
    bars = []
    for keys in sorted({int(n) for found in measured.values() for n in found}):
        files = measured.get("files", {}).get(str(keys))
        for name, figure, least in SPEED_BARS:
            ours = measured.get(name, {}).get(str(keys))
            ratio = ours[figure] / files[figure] if ours and files else None
            what = figure.removesuffix("_per_s")
            bars.append(Bar(f"{name} / files, {what}, {keys:,} keys", "at least", least, ratio))
    for name in ("segments", "log"):
        found = measured.get(name, {}).get(str(MANY_KEYS))
        if found is not None:
            what = f"{name}: ms to open {MANY_KEYS:,} keys after a crash"
            bars.append(Bar(what, "at most", OPEN_MS_MAX, found["open_ms"]))
    if written is not None:
        bars += [
            Bar("written by an epoch / state, 1 % changed", "at most", 0.03, written["delta"]),
            Bar("bytes for one entry of a large map", "at most", 1_000, written["entry_bytes"]),
            Bar("all segments / live state", "at most", 2.0, written["total"]),
        ]
    return bars


def format_backends(document: Mapping[str, Any]) -> str:
    """The document as plain text."""
    lines = [f"{'':<12}{'keys':>12}{'writes/s':>14}{'reads/s':>14}{'open ms':>12}"]
    for name, system in document["systems"].items():
        for keys, found in system["keys"].items():
            figures = (found["writes_per_s"], found["reads_per_s"], found["open_ms"])
            shown = "".join(f"{x:>14,.0f}" for x in figures[:2]) + f"{figures[2]:>12,.1f}"
            lines.append(f"{name:<12}{int(keys):>12,}{shown}")
        lines.append(f"{'':<12}{system['promise']}")
    lines += [f"{name}: left out: {reason}" for name, reason in document["skipped"].items()]
    lines.append(f"answers right: {'yes' if document['results_equal'] else 'NO'}")
    for bar in document["bars"]:
        verdict = "reached" if bar["reached"] else "MISSED"
        number = "not measured" if bar["measured"] is None else f"{bar['measured']:,.4g}"
        lines.append(f"{verdict:<8} {bar['name']}: {number} ({bar['bar']})")
    return "\n".join(lines)
