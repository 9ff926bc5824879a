"""`headrace bench memory`: does state that is larger than memory leave the memory alone?

Three processes, one after the other, run the pipeline of `job.py` on one checkpoint. The first
fills the state. The second comes to it cold, as after a crash, and goes on while keys, timers and
waiting records come and go. The third does the same under `recovery="eager"`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from headrace.bench.frame.bars import Bar
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.rounds import Say
from headrace.bench.memory.job import MemoryUse, MemoryWork
from headrace.errors import HeadraceError
from headrace.limits import Limits

PEAK_MB_MAX = 1000.0
LIMITS = Limits(merge_piece_bytes=16 << 20, merge_sample_bytes=1 << 20)
"""The driver, which merges segments, shares the process here. A merge takes about ten times the
memory of a piece."""


class MemorySize(msgspec.Struct, frozen=True):
    """What to measure."""

    state_mb: int = 5_000
    payload: int = 4_000
    epoch_records: int = 2_000
    peak_mb: float = PEAK_MB_MAX

    @property
    def live(self) -> int:
        """How many keys have state, and how many records wait, so that the state is that large."""
        return round(self.state_mb * 1e6 / 2 / self.payload)


def run_memory(
    size: MemorySize,
    *,
    work_dir: Path | None = None,
    say: Say = lambda line: None,
    limits: Limits = LIMITS,
) -> dict[str, Any]:
    """Runs the processes, and returns the JSON document."""
    machine = describe_machine()
    live = size.live
    more = max(size.epoch_records, live // 20)
    found: dict[str, MemoryUse] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-memory-", dir=work_dir) as directory:
        for name, records, recovery in (
            ("fill", live, "lazy"),
            ("lazy", live + more, "lazy"),
            ("eager", live + 2 * more, "eager"),
        ):
            place = str(Path(directory, "state"))
            work = MemoryWork(
                place, live, size.payload, records, size.epoch_records, recovery, limits
            )
            use = found[name] = _process(work)
            say(
                f"{name}: {use.state_mb:,.0f} MB of state in {use.peak_mb:,.0f} MB of memory, "
                f"first epoch {use.opened_s:.2f} s, epoch {use.epoch_s:.2f} s"
            )
    right = all(_is_right(use, live) for use in found.values())
    large = all(use.state_mb >= size.state_mb for use in found.values())
    return {
        "benchmark": "memory",
        "workload": msgspec.structs.asdict(size),
        "systems": {name: msgspec.structs.asdict(use) for name, use in found.items()},
        "results_equal": right and large,
        "bars": [
            Bar(f"{name}: peak of RssAnon, MB", "at most", size.peak_mb, use.peak_mb).as_json(
                right and large
            )
            for name, use in found.items()
        ],
        "machine": machine,
        "versions": describe_versions(),
    }


def _process(work: MemoryWork) -> MemoryUse:
    done = subprocess.run(
        [sys.executable, "-m", "headrace.bench.memory.job"],
        input=msgspec.json.encode(work),
        capture_output=True,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    if done.returncode:
        raise HeadraceError(f"the measured process failed:\n{done.stderr.decode()[-4000:]}")
    return msgspec.json.decode(done.stdout, type=MemoryUse)


def _is_right(use: MemoryUse, live: int) -> bool:
    """Whether timers have fired, and records were released, that the watermark has passed.

    The watermark is `live` records behind the last record: timers up to it fire, and records before
    it are released. A key that gets a new record gets a later timer, so fewer timers fire than
    there were records.
    """
    passed = max(use.records - live, 0)
    return abs(use.released - passed) <= 1 and passed // 2 <= use.timers <= passed + 1


def format_memory(document: Mapping[str, Any]) -> str:
    """The document as plain text."""
    lines = [f"{'':<8}{'state MB':>10}{'memory MB':>11}{'at start':>10}{'epoch s':>9}{'hits':>8}"]
    for name, use in document["systems"].items():
        lines.append(
            f"{name:<8}{use['state_mb']:>10,.0f}{use['peak_mb']:>11,.0f}{use['before_mb']:>10,.0f}"
            f"{use['epoch_s']:>9.2f}{use['hit_rate']:>8.1%}"
        )
    rate = document["systems"]["eager"]["prefetched_hit_rate"]
    if rate is not None:
        lines.append(f"of the objects that were loaded ahead, {rate:.1%} were used")
    lines.append(f"results right: {'yes' if document['results_equal'] else 'NO'}")
    for bar in document["bars"]:
        verdict = "reached" if bar["reached"] else "MISSED"
        lines.append(f"{verdict}  {bar['name']}: {bar['measured']:,.0f} ({bar['bar']})")
    return "\n".join(lines)
