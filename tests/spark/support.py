"""Runs pipelines without Spark but with their own sources and sinks; reads what comes out."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headrace import Checkpoint, Pipeline, RunSummary, failpoints
from headrace.engine.driver.follower import Follower
from headrace.engine.driver.local import LocalSubstrate
from headrace.engine.driver.setup import Setup
from headrace.engine.job import run_loop
from headrace.plan.fingerprint import fingerprint
from headrace.plan.options import Options
from headrace.state.cache import WorkerCache
from headrace.store.disk import DiskStore
from headrace.store.store import Store
from headrace.worker.runtime import Runtime

ROOT = Path(__file__).parents[2]
SHARED_DATA = ROOT.parent / "shared" / "data"

OF_SERVICES = ("after-intent-write", "after-call", "after-result-write")
"""Failpoints that only code which calls services reaches; the pipelines here call none."""
OF_MANY_FILES = ("after-record-write",)
"""Reached where hundreds of files have been read to their ends; there are few here."""
OF_LONG_RINGS = ("before-ring-write", "after-ring-write")
"""Reached where a ring has changed often; those here stay as they are."""
UNREACHED = (*failpoints.ASKED, *failpoints.OF_STATE_STORES)
"""Reached where something was asked of the pipeline, or with a state store."""
FAILPOINTS = tuple(
    name
    for name in failpoints.NAMES
    if name not in (*OF_SERVICES, *OF_MANY_FILES, *OF_LONG_RINGS, *UNREACHED)
)


def clock() -> int:
    return time.time_ns() // 1000


def local_follower(
    pipeline: Pipeline,
    checkpoint: str | os.PathLike[str] | Store,
    *,
    parallelism: int = 2,
    background: bool = False,
    **options: Any,
) -> Follower:
    """A follower like that of `Pipeline.run`, with this process in the place of Spark."""
    topology = pipeline.freeze()
    store = checkpoint if isinstance(checkpoint, Store) else DiskStore(os.fspath(checkpoint))
    substrate = LocalSubstrate(Runtime(topology, store, WorkerCache()))
    substrate.parallelism = parallelism
    setup = Setup(
        topology,
        fingerprint(topology.graph),
        store,
        substrate,
        Options(background=background, **options),
        clock=clock,
    )
    return Follower(setup)


IN_PLACE: dict[str, Any] = {"balance": "off", "straggler_after": None}
"""Options of a run on Spark whose files are compared with those of another run: no key moves to
another slot, and no record to another epoch, because the machine was slow."""


def run_local(
    pipeline: Pipeline, checkpoint: str | os.PathLike[str] | Store, **options: Any
) -> RunSummary:
    """Runs a pipeline to its end on the local substrate."""
    return run_loop(local_follower(pipeline, checkpoint, **options))


# What comes out.


def rows(output: Path) -> list[Any]:
    """Every row of a jsonl sink, epoch by epoch."""
    return [json.loads(line) for path in parts(output) for line in path.open(encoding="utf-8")]


def parts(output: Path) -> list[Path]:
    """The files that readers of a sink see, in order."""
    return sorted(path for path in output.glob("epoch=*/**/*") if path.is_file())


def contents(output: Path) -> dict[str, bytes]:
    """What readers see under a directory of sinks, byte for byte."""
    return {
        str(path.relative_to(output)): path.read_bytes()
        for path in sorted(output.rglob("epoch=*/**/*"))
        if path.is_file()
    }


def bag(found: Iterable[Any]) -> Counter[str]:
    """Rows regardless of their order."""
    return Counter(json.dumps(row, sort_keys=True) for row in found)


def state_of(checkpoint: str | os.PathLike[str]) -> dict[str, dict[Any, Any]]:
    """All state of a checkpoint: computation -> key -> fields."""
    found = Checkpoint(os.fspath(checkpoint))
    return {name: dict(found.scan(name)) for name in found.computations}


def write_jsonl(path: Path, values: Iterable[Any]) -> Path:
    """Writes JSON lines so that they appear complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}")
    aside.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    aside.rename(path)
    return path


# Other processes.


SHORT_LIVED_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for seconds spends half of its time on compiling code for hours."""


def environment(**more: str) -> dict[str, str]:
    """The environment for a process that imports headrace and these tests."""
    paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        "JAVA_TOOL_OPTIONS": SHORT_LIVED_JVM,
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        **more,
    }


def with_declared_packages_only(directory: Path) -> dict[str, str]:
    """An environment in which nothing can be imported that a plain install does not bring.

    It holds for all Python processes of a run: Spark's workers too.
    """
    wanted, brought = ["headrace"], set()
    while wanted:
        name = re.sub(r"[-_.]+", "-", wanted.pop()).lower()
        if name not in brought:
            brought.add(name)
            needs = importlib.metadata.requires(name) or []
            plain = [need for need in needs if "extra ==" not in need]
            wanted += [re.split(r"[ <>=!~;\[(]", need)[0] for need in plain]
    hidden = {
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if not module.startswith("_")
        and all(re.sub(r"[-_.]+", "-", owner).lower() not in brought for owner in owners)
    }
    assert {"duckdb", "polars", "pytest"} <= hidden and "pyarrow" not in hidden
    (directory / "sitecustomize.py").write_text(
        f"""import sys
hidden = {sorted(hidden)!r}
class Without:
    # What is hidden is not found, as if it were not installed, by whoever looks and however.
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in hidden:
            return self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path[:] = map(Without, sys.meta_path)
"""
    )
    found = environment()
    found["PYTHONPATH"] = os.pathsep.join([str(directory), found["PYTHONPATH"]])
    return found


def lines_of(stream: Any) -> Iterator[str]:
    """Lines of a process's output as they come."""
    for line in iter(stream.readline, ""):
        yield line.rstrip("\n")
