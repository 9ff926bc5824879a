"""Pipelines whose input and output may lie in any store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cluster.programs.life import First, Second
from tests.spark.pipelines import Splitter, WordCount

from headrace import Pipeline, sinks, sources, tumbling


def below(url: str, name: str) -> str:
    """A name below a URL (its options stay behind it) or a path."""
    place, mark, options = url.partition("?")
    return f"{place.rstrip('/')}/{name}{mark}{options}"


def lives(source: str, output: str) -> Pipeline:
    """Numbers the records of a key at two levels: a lost or doubled record shows."""
    p = Pipeline("lives")
    p.read("in", sources.jsonl(below(source, "*.jsonl"), timestamp="at", lateness="1h"))
    p.compute(First, inputs={"in": "key"}, outputs="firsts")
    p.compute(Second, inputs={"firsts": lambda value: value["key"][-1]}, outputs="seconds")
    p.stream("seconds").write(sinks.jsonl(output))
    return p


def word_count(source: str, output: str) -> Pipeline:
    """Counts words, and says the counts at the end of the input."""
    p = Pipeline("word count")
    p.read("lines", sources.text(below(source, "*.txt")))
    p.compute(Splitter, inputs={"lines": None}, outputs="words")
    p.compute(WordCount, inputs={"words": lambda word: word}, outputs="counts")
    p.stream("counts").write(sinks.jsonl(output))
    return p


def windowed_join(source: str, output: str) -> Pipeline:
    """Pairs clicks and views of a user in windows of ten seconds."""
    p = Pipeline("windowed join")

    def stream(name: str) -> Any:
        files = sources.jsonl(below(source, f"{name}-*.jsonl"), timestamp="at", lateness="5s")
        return p.read(name, files).key_by("user")

    columns = {"user": "left.user", "click": "left.clicks", "view": "right.views"}
    joined = stream("clicks").join(stream("views"), window=tumbling("10s"), select=columns)
    joined.write(sinks.jsonl(output))
    return p


PIPELINES: dict[str, Callable[[str, str], Pipeline]] = {
    "lives": lives, "word_count": word_count, "windowed_join": windowed_join,
}  # fmt: skip
