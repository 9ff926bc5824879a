"""The pipelines that tests here run: word count, and an exchange with a diamond and a loop."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.reference.exchange import Row, bonus_of, sponsor_of
from tests.reference.word_count import words_of

from headrace import (
    SECOND,
    Computation,
    Context,
    Map,
    Pipeline,
    Record,
    Timer,
    sinks,
    sources,
    state,
)
from headrace.sources import Source
from headrace.store.store import ForwardingStore, Store

YEAR_3000 = 32_503_680_000 * SECOND


class Splitter(Computation):
    """Lines to words; it needs no key and so runs where lines are read."""

    def process_record(self, record: Record[str], ctx: Context) -> None:
        for word in words_of(record.value):
            ctx.produce(word)


class WordCount(Computation):
    """Counts a word and tells its count at the end of the input."""

    count: int = state(0)

    def process_record(self, record: Record[str], ctx: Context) -> None:
        self.count += 1
        ctx.set_timer(at=YEAR_3000)

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        ctx.produce({"word": ctx.key, "count": self.count}, timestamp=0)


def word_count(source: Source, output: Path) -> Pipeline:
    p = Pipeline("word count")
    p.read("lines", source)
    p.compute(Splitter, inputs={"lines": None}, outputs="words")
    p.compute(WordCount, inputs={"words": lambda word: word}, outputs="counts")
    p.stream("counts").write(sinks.jsonl(output))
    return p


class Book(Computation, ordered=True):
    """The running total of an account."""

    total: int = state(0)

    def process_record(self, record: Record[Row], ctx: Context) -> None:
        self.total += record.value["amount"]
        ctx.produce({**record.value, "total": self.total})


class Volume(Computation, ordered=True):
    """What was traded of a symbol in each second."""

    volumes: dict[int, int] = state()

    def process_record(self, record: Record[Row], ctx: Context) -> None:
        second = record.timestamp // SECOND
        self.volumes[second] = self.volumes.get(second, 0) + record.value["amount"]
        ctx.set_timer(second, at=(second + 1) * SECOND)

    def process_timer(self, timer: Timer, ctx: Context) -> None:
        volume = self.volumes.pop(timer.tag)
        row = {"symbol": ctx.key, "second": timer.tag, "volume": volume}
        ctx.produce(row, timestamp=timer.timestamp - 1)


class Close(Computation, ordered=True):
    """The far corner of the diamond: who traded last in a second, and how much all did."""

    last: Map[int, list[Any]] = state()

    def process_record(self, record: Record[Row], ctx: Context) -> None:
        row = record.value
        if record.stream == "booked":
            self.last[record.timestamp // SECOND] = [row["account"], row["total"]]
        else:
            leader, total = self.last.pop(row["second"])
            ctx.produce({**row, "leader": leader, "total": total})


class Pay(Computation):
    """Pays a bonus and passes half of it on; the loop ends when nothing is left."""

    paid: int = state(0)

    def process_record(self, record: Record[Row], ctx: Context) -> None:
        row = record.value
        amount = bonus_of(row["volume"]) if record.stream == "closed" else row["amount"]
        step = 0 if record.stream == "closed" else row["step"]
        if amount > 0:
            self.paid += amount
            ctx.produce({"account": ctx.key, "amount": amount, "step": step}, to="payments")
            onward = {"account": sponsor_of(ctx.key), "amount": amount // 2, "step": step + 1}
            ctx.produce(onward, to="passed on")


def exchange(source: Source, output: Path | str) -> Pipeline:
    p = Pipeline("exchange")
    p.read("trades", source)
    p.compute(Book, inputs={"trades": "account"}, outputs="booked")
    p.compute(Volume, inputs={"trades": "symbol"}, outputs="volumes")
    p.compute(Close, inputs={"booked": "symbol", "volumes": "symbol"}, outputs="closed")
    p.stream("passed on", feedback=True)
    p.compute(
        Pay, inputs={"closed": "leader", "passed on": "account"}, outputs=["payments", "passed on"]
    )
    p.stream("closed").write(sinks.jsonl(inside(output, "closed")))
    p.stream("payments").write(sinks.jsonl(inside(output, "payments")))
    return p


def make_trades(
    seed: int, *, count: int, files: int = 2, disorder: int = 0, per_second: int = 40
) -> dict[str, list[Row]]:
    """Trades by file. Instants are coarse, so many fall on one; `disorder` is in microseconds."""
    dice = random.Random(seed)
    found: dict[str, list[Row]] = {f"trades-{number}.jsonl": [] for number in range(files)}
    for name, rows in found.items():
        arriving = []
        for number in range(count // files):
            at = 1_000 * SECOND + number * files * SECOND // per_second // 50_000 * 50_000
            arriving.append(
                (
                    at + dice.randint(0, disorder),
                    number,
                    {
                        "ts": at,
                        "account": f"a{dice.randint(1, 60)}",
                        "symbol": dice.choice(["TEA", "OAT", "RYE", "HOP", "FIG", "DILL"]),
                        "amount": dice.randint(1, 400),
                    },
                )
            )
        rows += [row for *_, row in sorted(arriving, key=lambda each: each[:2])]
        found[name] = rows
    return found


def write_trades(trades: Mapping[str, Sequence[Row]], directory: Path) -> Source:
    """Writes the files, and gives the source that reads them."""
    from tests.spark.support import write_jsonl

    for name, rows in trades.items():
        write_jsonl(directory / name, rows)
    return trades_in(directory)


def trades_in(directory: Path | str) -> Source:
    return sources.jsonl(inside(directory, "*.jsonl"), timestamp="ts", lateness="2s")


def inside(place: Path | str, name: str) -> str:
    """A name below a directory, or below a URL with options."""
    whole, question, options = str(place).partition("?")
    return f"{whole}/{name}{question}{options}"


class Pathless(ForwardingStore):
    """A store whose files Spark cannot reach by a path, as in a bucket."""

    def local_path(self, name: str = "") -> str | None:
        return None

    def __reduce__(self) -> tuple[type[Pathless], tuple[Store]]:
        return (Pathless, (self.base,))
