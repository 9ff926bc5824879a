"""S4's comparisons of checkpoint stores: operations per second on each, by what is asked.

In S4, threads write checkpoints beside the events. Here an epoch's changes are made durable
together, so what is swept is how many operations that are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.bench.backends.rounds import measure_store
from headrace.bench.backends.workload import KeySet, Operations
from headrace.bench.frame.rounds import Say
from headrace.bench.papers.row import PaperRow, Points
from headrace.bench.papers.shape import Judgement, ShapeVerdict
from headrace.bench.servers.processes import CannotHave

TOGETHER = (1, 10, 100, 1_000)
EVENTS_PER_S = 400
NAMES = ("files", "log", "segments")
SYNCED_ALONE = ("files", "log")
"""Segments are left out where each operation is an epoch: nothing merges them here."""


def measure_rates(say: Say) -> Points:
    """S4's figure 4.1: 1 KB, nine of ten operations write, 1,000 keys."""
    found: dict[str, Any] = {}
    for together in TOGETHER:
        shape = Operations(1_000, {1: 300, 10: 1_000}.get(together, 4_000), together)
        found[str(together)] = _stores(shape, SYNCED_ALONE if together < 100 else NAMES, say)
    return {"together": found, "right": _right(found.values())}


def judge_rates(points: Mapping[str, Any]) -> ShapeVerdict:
    """The log saturates at least three times later than files."""
    most = {
        name: max(each[name]["operations_per_s"] for each in points["together"].values())
        for name in ("files", "log")
    }
    ratio = most["log"] / most["files"]
    shape = Judgement().at_least("operations/s at saturation, log / files,", ratio, 3.0)
    for together in ("1", "1000"):
        each = points["together"][together]
        one, other = (each[name]["operations_per_s"] for name in ("files", "log"))
        shape.below(f"files with {together} at a time", one, "log", other)
    return shape.verdict()


def measure_words(say: Say) -> Points:
    """S4's figure 4.5: a word count at 400 events/s; an epoch is a second, so 400 events."""
    shape = Operations(1_000, 5 * EVENTS_PER_S, EVENTS_PER_S, value_bytes=64)
    by_epoch = _stores(shape, NAMES, say)
    alone = Operations(1_000, 300, 1, value_bytes=64)
    by_event = _stores(alone, SYNCED_ALONE, say)
    found = {"by_epoch": by_epoch, "by_event": by_event}
    return {**found, "events_per_s": EVENTS_PER_S, "right": _right(found.values())}


def judge_words(points: Mapping[str, Any]) -> ShapeVerdict:
    """Indexed stores write and read faster than files by at least the paper's factors."""
    shape = Judgement()
    stores = points["by_epoch"]
    files = stores["files"]
    for name in ("log", "segments"):
        for figure, least in (("writes_per_s", 4.85), ("reads_per_s", 3.0)):
            ratio = stores[name][figure] / files[figure]
            what = figure.removesuffix("_per_s")
            shape.at_least(f"{what}, {name} / files,", ratio, least)
    slowest = min(each["writes_per_s"] for name, each in stores.items() if name != "files")
    return shape.at_least("writes/s of the slower one", slowest, EVENTS_PER_S).verdict()


def measure_servers(say: Say) -> Points:
    """S4's figure 4.6: Redis and HBase, each a single node of its own on this machine."""
    shape = Operations(1_000, 10_000, 1_000)
    found = _stores(shape, ("log", "redis", "hbase"), say)
    return {"stores": found, "right": _right([found])}


def judge_servers(points: Mapping[str, Any]) -> ShapeVerdict:
    """Redis writes faster than HBase; HBase writes faster than it reads."""
    redis, hbase = (points["stores"].get(name, {}) for name in ("redis", "hbase"))
    shape = Judgement().below(
        "writes/s of HBase", hbase.get("writes_per_s"), "that of Redis", redis.get("writes_per_s")
    )
    shape.below(
        "reads/s of HBase", hbase.get("reads_per_s"), "its writes/s", hbase.get("writes_per_s")
    )
    promises = [each.get("promise") for each in (redis, hbase)]
    return shape.claim(f"durability is named: {promises}", all(promises)).verdict()


def measure_keys(say: Say) -> Points:
    """S4's figure 4.7: more and more keys; nothing is dropped."""
    found: dict[str, Any] = {}
    for keys in (1_000, 10_000, 100_000, 1_000_000):
        # A million files take minutes to make, though none of them is synced.
        found[str(keys)] = _stores(Operations(keys, 1_500, 500), NAMES, say)
    return {"keys": found, "right": _right(found.values())}


def judge_keys(points: Mapping[str, Any]) -> ShapeVerdict:
    """Files get slower with the number of keys, indexed stores do not."""
    every = points["keys"].values()
    files = [each["files"]["operations_per_s"] for each in every if "files" in each]
    log = [each["log"]["operations_per_s"] for each in every]
    shape = Judgement().falls("operations/s on files, by keys,", files)
    return shape.flat("operations/s on the log, by keys,", log, 0.5).verdict()


def measure_flushed(say: Say) -> Points:
    """S4's figure 5.1: every operation is flushed to the local disk by itself."""
    found = _stores(Operations(1_000, 400, 1), SYNCED_ALONE, say)
    return {"stores": found, "right": _right([found])}


def judge_flushed(points: Mapping[str, Any]) -> ShapeVerdict:
    """The log is ahead."""
    files, log = (points["stores"][name]["operations_per_s"] for name in ("files", "log"))
    return (
        Judgement().below("flushed operations/s on files", files, "those on the log", log).verdict()
    )


def _stores(shape: Operations, names: Sequence[str], say: Say) -> dict[str, Any]:
    keys = KeySet(shape)
    found: dict[str, Any] = {}
    for name in names:
        try:
            found[name] = measure_store(name, keys)
        except CannotHave as error:
            say(f"{name}: left out: {error}")
            continue
        each = found[name]
        say(
            f"{name}, {shape.keys:,} keys, {shape.epoch_operations:,} at a time: "
            f"{each['writes_per_s']:,.0f} writes/s, {each['reads_per_s']:,.0f} reads/s"
        )
    return found


def _right(every: Any) -> bool:
    return all(store["wrong_answers"] == 0 for each in every for store in each.values())


_WITHOUT = "the stores themselves, without Spark"

S4_41 = PaperRow(
    "s4-4.1",
    "1 KB, 90 % writes, 10,000 operations, 1,000 keys: files saturate at 700 operations/s, the "
    "indexed log at 2,100",
    f"{_WITHOUT}: 1 to 1,000 operations are made durable together, in the place of threads",
    "`log` at least 3 x `files`",
    measure_rates,
    judge_rates,
)
S4_45 = PaperRow(
    "s4-4.5",
    "word count, 400 events/s, a checkpoint per event: writes 4.85 x as fast, reads 3 x",
    f"{_WITHOUT}: 400 small states in an epoch of a second; also one at a time, for comparison",
    "at least that",
    measure_words,
    judge_words,
)
S4_46 = PaperRow(
    "s4-4.6",
    "Redis a little ahead on writes; HBase writes faster than it reads",
    f"{_WITHOUT}: a Redis server and an HBase of one node, both on this machine",
    "same order, durability named",
    measure_servers,
    judge_servers,
)
S4_47 = PaperRow(
    "s4-4.7",
    "1,000,000 events: files fall from 400 to 150/s at 10^6 keys, the indexed log stays at 1,300",
    f"{_WITHOUT}: 1,000 to 1,000,000 keys, filled without syncs; nothing is dropped",
    "`files` falls, `log` flat",
    measure_keys,
    judge_keys,
    note="a present file system finds one file among very many about as fast as among 1,000",
)
S4_51 = PaperRow(
    "s4-5.1",
    "local disk, flushed: files 500 operations/s, the indexed log 700",
    f"{_WITHOUT}: every operation is synced by itself",
    "`log` ahead",
    measure_flushed,
    judge_flushed,
)
