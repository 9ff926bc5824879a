"""`headrace bench interval`: what a checkpoint interval saves, and what a checkpoint disturbs.

1. The same epochs run in this process with every interval, over a directory whose syncs, files and
   bytes are counted. Nothing else is measured there, so the counts are exact and repeat.
2. On Spark the pipeline runs with the longest interval. While a checkpoint is being made, epochs go
   on: those that overlap it are compared with those that do not, in the same run, where the two
   take turns every few epochs. The 95th percentiles of all rounds are compared; a round before
   them, as long as they are, warms up Spark and is not counted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from headrace.bench.frame.bars import Bar
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.session import local_session
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.local import LocalSubstrate
from headrace.engine.driver.setup import Setup
from headrace.engine.pipeline import Pipeline
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.model.computation import Computation
from headrace.model.context import Context
from headrace.model.record import Record
from headrace.model.state import state
from headrace.plan.decisions.next_step import Run
from headrace.plan.fingerprint import fingerprint
from headrace.plan.interval.cadence import Cadence
from headrace.plan.listener import Listener
from headrace.plan.options import Options
from headrace.plan.progress import CheckpointProgress, EpochProgress
from headrace.sources import memory
from headrace.state.cache import WorkerCache
from headrace.store.disk import DiskStore
from headrace.system import Filesystem, System
from headrace.worker.runtime import Runtime

DISTURBED_MAX = 1.25
"""How much longer the 95th percentile of epochs may be while a checkpoint is made."""
_PADDING = "." * 64


class PaddedTally(Computation):
    """Counts per key, with some bytes beside the count, as real state has."""

    n: int = state(0)
    note: str = state("")

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        self.n += 1
        self.note = f"{self.n}{_PADDING}"


def pipeline_of(records: int, keys: int, epochs: int) -> Pipeline:
    """Records of `keys` keys in turn, so many for each epoch."""
    p = Pipeline("interval")
    total = records * epochs
    p.read("numbers", memory(list(range(total)), timestamps=range(total)))
    p.compute(PaddedTally, inputs={"numbers": _Modulo(keys)}, outputs="tallies")
    return p


class _Modulo:
    """The key of a number."""

    def __init__(self, keys: int) -> None:
        self._keys = keys

    def __call__(self, number: int) -> int:
        return number % self._keys


class CountingFiles(Filesystem):
    """Counts syncs, and the files and bytes that they made durable."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs = self.files = self.bytes = self.written = 0
        self._open: dict[int, int] = {}
        """Descriptor -> bytes that were written to it."""

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        done = super().write(descriptor, data)
        self._open[descriptor] = self._open.get(descriptor, 0) + done
        self.written += done
        return done

    def fsync(self, descriptor: int) -> None:
        super().fsync(descriptor)
        self.syncs += 1
        size = self._open.pop(descriptor, 0)
        self.files += size > 0
        self.bytes += size

    def close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)
        super().close(descriptor)

    def counted(self) -> dict[str, int]:
        """All counts so far."""
        return {
            "syncs": self.syncs,
            "synced_files": self.files,
            "synced_bytes": self.bytes,
            "written_bytes": self.written,
        }


def counted_run(
    directory: Path, *, every: int, records: int, keys: int, epochs: int, slots: int
) -> tuple[dict[str, float], dict[Any, Any]]:
    """What a run with an interval syncs and writes per epoch, and the state at its end."""
    topology = pipeline_of(records, keys, epochs).freeze()
    files = CountingFiles()
    store = DiskStore(directory, System(files))
    substrate = LocalSubstrate(Runtime(topology, store, WorkerCache()))
    options = Options(
        slots=slots,
        epoch_records=records,
        background=False,
        checkpoint_every=Cadence(every),
        until="caught_up",
    )
    setup = Setup(topology, fingerprint(topology.graph), store, substrate, options)
    driver = Follower(setup).take_over()
    before = files.counted()
    while isinstance(driver.step(), Run):
        pass
    done = files.counted()
    driver.close()
    numbers = {f"{what}_per_epoch": (done[what] - before[what]) / epochs for what in done}
    return {name: round(value, 2) for name, value in numbers.items()}, _tallies(Checkpoint(store))


def _tallies(checkpoint: Checkpoint) -> dict[Any, Any]:
    return {key: fields["n"] for key, fields in checkpoint.scan("PaddedTally")}


def right_tallies(records: int, keys: int) -> dict[Any, Any]:
    """What must be in the state after so many records: their keys come in turn."""
    return {key: len(range(key, records, keys)) for key in range(min(keys, records))}


class _Watch(Listener):
    """When epochs ran, and when fragments were made."""

    only_fragments: ClassVar[bool] = True

    def __init__(self, system: System) -> None:
        self._system = system
        self.epochs: list[tuple[float, float, float]] = []
        """(began, ended, seconds) of each epoch."""
        self.making: list[tuple[float, float]] = []

    def on_epoch(self, progress: EpochProgress) -> None:
        ended = self._system.wall_s()
        self.epochs.append((ended - progress.seconds, ended, progress.seconds))

    def on_checkpoint(self, progress: CheckpointProgress) -> None:
        self.making.append((progress.started, progress.durable))


def run_interval(
    *,
    every: Sequence[int] = (1, 4, 16),
    records: int = 4_000,
    keys: int = 4_000,
    epochs: int = 96,
    counted: int = 96,
    warmup: int = 16,
    slots: int = 2,
    rounds: int = 8,
    work_dir: Path | None = None,
    say: Any = lambda line: None,
) -> dict[str, Any]:
    """Measures both, and returns the JSON document; `counted` epochs are only counted."""
    machine = describe_machine()
    systems: dict[str, dict[str, Any]] = {}
    equal = True
    seconds: dict[str, list[float]] = {"during": [], "without": []}
    with tempfile.TemporaryDirectory(
        prefix="headrace-bench-", dir=work_dir, ignore_cleanup_errors=True
    ) as directory:
        for n in every:
            say(f"counting with an interval of {n}")
            numbers, found = counted_run(
                Path(directory) / f"counted-{n}",
                every=n,
                records=records,
                keys=keys,
                epochs=counted,
                slots=slots,
            )
            systems[f"every-{n}"] = dict(numbers)
            equal &= found == right_tallies(records * counted, keys)
        with local_session(slots, Path(directory), "interval") as spark:
            for number in range(rounds + 1):  # in the first one Spark is still slow
                which = f"round {number} of {rounds}" if number else "warm-up"
                say(f"{which}: epochs on Spark, interval {max(every)}")
                watch = _Watch(System())
                pipeline_of(records, keys, epochs + warmup).run(
                    checkpoint=Path(directory) / f"round-{number}",
                    spark=spark,
                    slots=slots,
                    epoch_records=records,
                    checkpoint_every=max(every),
                    balance="off",
                    listeners=[watch],
                    until="caught_up",
                )
                found = _tallies(Checkpoint(Path(directory) / f"round-{number}"))
                equal &= found == right_tallies(records * (epochs + warmup), keys)
                if number:
                    for kind, took in split_epochs(watch.epochs[warmup:], watch.making).items():
                        seconds[kind] += took
    first, last = systems[f"every-{min(every)}"], systems[f"every-{max(every)}"]
    p95 = {kind: percentile(took, 0.95) for kind, took in seconds.items()}
    during, without = p95["during"], p95["without"]
    ratio = round(during / without, 4) if during and without else None
    bar = Bar("epoch p95 while a checkpoint is made / without", "at most", DISTURBED_MAX, ratio)
    return {
        "benchmark": "interval",
        "workload": {
            "records": records,
            "keys": keys,
            "epochs": epochs,
            "counted": counted,
            "slots": slots,
        },
        "systems": systems,
        "ratios": {name: round(last[name] / first[name], 4) for name in first if first[name]},
        "epochs": {
            kind: {
                "number": len(took),
                "p50_ms": round(1e3 * (percentile(took, 0.5) or 0.0), 2),
                "p95_ms": round(1e3 * (p95[kind] or 0.0), 2),
            }
            for kind, took in seconds.items()
        },
        "results_equal": equal,
        "bars": [bar.as_json(equal)],
        "machine": machine,
        "versions": describe_versions(),
    }


def split_epochs(
    epochs: Sequence[tuple[float, float, float]], making: Sequence[tuple[float, float]]
) -> dict[str, list[float]]:
    """The seconds of epochs that overlap the making of a fragment, and of those that do not."""
    found: dict[str, list[float]] = {"during": [], "without": []}
    for began, ended, took in epochs:
        overlaps = any(start < ended and began < end for start, end in making)
        found["during" if overlaps else "without"].append(took)
    return found


def percentile(values: Sequence[float], share: float) -> float | None:
    """The value below which this share of all lies; None if there is none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


def format_interval(document: Mapping[str, Any]) -> str:
    """The document as plain text."""
    titles = ("syncs", "synced_files", "synced_bytes", "written_bytes")
    lines = [f"{'per epoch':<12}" + "".join(f"{t.replace('_', ' '):>16}" for t in titles)]
    for name, numbers in document["systems"].items():
        cells = (f"{numbers[f'{title}_per_epoch']:>16,.1f}" for title in titles)
        lines.append(f"{name:<12}" + "".join(cells))
    lines.append("")
    for kind, numbers in document["epochs"].items():
        lines.append(
            f"epochs {kind:<8} {numbers['number']:>5}: p50 {numbers['p50_ms']:,.1f} ms, "
            f"p95 {numbers['p95_ms']:,.1f} ms"
        )
    lines += ["", f"results equal: {'yes' if document['results_equal'] else 'NO'}"]
    for bar in document["bars"]:
        verdict = "reached" if bar["reached"] else "MISSED"
        lines.append(f"{verdict}  {bar['name']}: {bar['measured']} ({bar['bar']})")
    return "\n".join(lines)
