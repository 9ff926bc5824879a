"""20,000 epochs in one run, without Spark: does the last one cost what the first ones did?

Time of a processor, memory, files of the checkpoint and bytes of its log are sampled on the way.
The checkpoint lies on disk; syncs are left out, as they would only take time.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from headrace.bench.frame.bars import Bar
from headrace.bench.frame.rounds import Say
from headrace.bench.growing.axes import TallyOn
from headrace.bench.memory.job import rss_anon_mb
from headrace.bench.papers.shape import slope
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.local import LocalSubstrate
from headrace.engine.driver.setup import Setup
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.errors import HeadraceError
from headrace.log import paths
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.plan.fingerprint import fingerprint
from headrace.plan.options import Options
from headrace.sources.generated import generate
from headrace.state.cache import WorkerCache
from headrace.store.disk import DiskStore
from headrace.system import Filesystem, System
from headrace.worker.runtime import Runtime

EPOCHS = 20_000
SAMPLES = 100
EPOCHS_MIN = 200
EPOCH_RECORDS = 10
KEYS = 1_000
RATIO_MAX = {"cpu_ms": 1.5, "memory_mb": 1.2, "files": 1.5, "log_bytes": 1.5}
"""Late over early: the last tenth of samples over the second one, at the median."""


class Unsynced(Filesystem):
    """Files without syncs."""

    def fsync(self, descriptor: int) -> None:
        """Does nothing."""


def run_epochs(
    epochs: int = EPOCHS,
    *,
    work_dir: Path | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Runs all epochs; the part of the JSON document about them."""
    if epochs < EPOCHS_MIN:
        raise HeadraceError(
            f"{epochs} epochs are too few to see growth: give at least {EPOCHS_MIN}"
        )
    every = max(1, epochs // SAMPLES)
    samples: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="headrace-epochs-", dir=work_dir) as directory:
        where = Path(directory)
        pipeline = PipelineBuilder("epochs")
        pipeline.read("numbers", generate(_number, rate=1000.0))
        pipeline.compute(TallyOn, inputs={"numbers": _key}, outputs="unused", name="tally")
        topology = pipeline.freeze()
        store = DiskStore(where, System(Unsynced()))
        substrate = LocalSubstrate(Runtime(topology, store, WorkerCache()))
        options = Options(until=None, slots=2, epoch_records=EPOCH_RECORDS, background=False)
        setup = Setup(topology, fingerprint(topology.graph), store, substrate, options)
        driver = Follower(setup).take_over()
        while driver.ledger.epoch < epochs:
            until = min(driver.ledger.epoch + every, epochs)
            first, began, cpu = driver.ledger.epoch, time.perf_counter(), time.process_time()
            while driver.ledger.epoch < until:
                driver.step()
            done = driver.ledger.epoch - first
            cpu_ms = (time.process_time() - cpu) * 1e3 / done
            ms = (time.perf_counter() - began) * 1e3 / done
            files = [path for path in where.rglob("*") if path.is_file()]
            log = [path for path in files if paths.LOG in path.relative_to(where).parts]
            samples.append(
                {
                    "epoch": driver.ledger.epoch,
                    "ms": round(ms, 3),
                    "cpu_ms": round(cpu_ms, 3),
                    "memory_mb": round(rss_anon_mb(), 2),
                    "files": len(files),
                    "log_bytes": sum(path.stat().st_size for path in log),
                }
            )
            if len(samples) % 10 == 0:
                say(f"{driver.ledger.epoch:,} epochs: {samples[-1]}")
        total = driver.ledger.counters.records
        driver.close()
        counted = sum(kept["count"] for _, kept in Checkpoint(store).scan("tally"))
    return judged(samples, right=counted == total)


def judged(samples: Sequence[Mapping[str, float]], *, right: bool) -> dict[str, Any]:
    """What grows with the number of epochs."""
    tenth = max(1, len(samples) // 10)
    early, late = samples[tenth : 2 * tenth], samples[-tenth:]
    figures, bars = {}, []
    for name, most in RATIO_MAX.items():
        first, last = (median(each[name] for each in part) for part in (early, late))
        power = slope([s["epoch"] for s in samples[tenth:]], [s[name] for s in samples[tenth:]])
        figures[name] = {
            "early": first,
            "late": last,
            "slope": None if power is None else round(power, 4),
        }
        ratio = round(last / first, 4) if first else None
        bars.append(Bar(f"epochs: {name}, late / early", "at most", most, ratio).as_json(right))
    return {
        "what": "epochs in one run",
        "points": list(samples),
        "figures": figures,
        "results_equal": right,
        "bars": bars,
    }


def format_epochs(found: Mapping[str, Any]) -> list[str]:
    """The figures as lines of text."""
    last = found["points"][-1]["epoch"]
    return [
        f"{last:,} epochs: {name:<10} early {f['early']:,.2f}, late {f['late']:,.2f}, to the power "
        f"of {f['slope']}"
        for name, f in found["figures"].items()
    ]


def _number(n: int, dice: Any) -> int:
    return n


def _key(number: int) -> int:
    return number * 7 % KEYS
