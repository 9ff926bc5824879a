"""Values that break encoders, messages or sinks are one record's fault, and stop nobody else."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.unit.engine.support import driver_of, run
from tests.unit.pipelines import at, one

from headrace import Computation, Pipeline, UserCodeError, sinks, sources, state, to
from headrace.errors import SourceError
from headrace.model.values.codec import CELL_NESTED_MAX, NESTED_MAX
from headrace.sources.files.input_file import LocalFile
from headrace.sources.files.json_lines import JsonFormat
from headrace.store.disk import DiskStore
from headrace.testing import Harness

DEPTHS = [NESTED_MAX - 1, NESTED_MAX, 500, 990, 5000]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


class Count(Computation):
    n: int = state(0)

    def process_record(self, record, ctx):
        self.n += 1
        ctx.produce({"k": ctx.key, "n": self.n})


class Pass(Computation):
    def process_record(self, record, ctx):
        ctx.produce(record.value)


class Waiting(Computation, ordered=True):
    def process_record(self, record, ctx):
        ctx.produce(record.value)


def lines(directory: Path, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    rows = ['{"k":"a","t":1}', '{"k":"a","t":2,"x":' + deep + "}", '{"k":"a","t":3}']
    (directory / "a.jsonl").write_text("\n".join(rows) + "\n")


def pipeline(directory: Path, how: str, errors: Any) -> Pipeline:
    p = Pipeline("p")
    source = sources.jsonl(f"{directory}/*.jsonl", timestamp="t")
    stream = p.read("in", source, errors=errors)
    if how == "fluent":
        stream.key_by("k").count().named("c")
    elif how == "table":
        stream.map_table(lambda table: table).named("c")
    elif how == "map":
        stream.map(lambda v: v).named("c")
    else:
        made = {"count": Count, "pass": Pass, "ordered": Waiting}[how]
        p.compute(made, inputs={"in": "k"}, outputs="c", errors=errors)
    p.stream("c").write(sinks.jsonl(str(directory / "out")))
    return p


def outcome(directory: Path, how: str, depth: int, errors: Any) -> list[Any]:
    """Runs it; gives the dead letters."""
    lines(directory, depth)
    p = pipeline(directory, how, errors)
    dead: list[Any] = []
    if errors != "stop":
        p.stream("dead").write(sinks.jsonl(str(directory / "dead")))
    driver = driver_of(p.freeze(), DiskStore(directory / "state"))
    try:
        run(driver)
    finally:
        driver.close()
        for file in (directory / "dead").glob("epoch=*/*.jsonl"):
            dead += map(json.loads, file.read_text().splitlines())
        for name in ("out", "dead", "state"):
            shutil.rmtree(directory / name, ignore_errors=True)
    return dead


@pytest.mark.parametrize("how", ["count", "pass", "ordered", "fluent", "map", "table"])
def test_json_nested_to_any_depth_is_a_record_or_a_dead_letter(how: str, tmp_path: Path) -> None:
    for depth in DEPTHS:
        dead = outcome(tmp_path, how, depth, to("dead"))
        assert len(dead) == (depth >= NESTED_MAX), depth
        for letter in dead:
            assert f"nested more than {NESTED_MAX} deep" in letter["error"]
            assert letter["value"].startswith('{"k":"a","t":2,"x":[[[')


@pytest.mark.parametrize("depth", [NESTED_MAX, 500, 990, 5000])
def test_without_a_policy_it_stops_the_run_with_its_place(depth: int, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"position 16: .*nested more than"):
        outcome(tmp_path, "count", depth, "stop")


def test_letters_about_deep_lines_are_alike_whoever_reads_them(tmp_path: Path) -> None:
    """Near its own limit the decoder's answer depends on how deep its caller's stack is."""
    path = str(tmp_path / "a.jsonl")
    for depth in (500, 800, 900, 960, 990):
        lines(tmp_path, depth)
        told = {deeper(frames, lambda: rejected(path)) for frames in (0, 60, 200, 400)}
        assert len(told) == 1


def deeper(frames: int, act: Any) -> Any:
    return act() if not frames else deeper(frames - 1, act)


def rejected(path: str) -> tuple[Any, ...]:
    (bad,) = JsonFormat().read(LocalFile(path), "a.jsonl", 0, 1 << 20).rejected
    return bad.position, bad.raw, bad.reason


@dataclass
class Link:
    to: Any


def links(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = Link(value)
    return value


POISON = {
    "nested": lambda: nested(NESTED_MAX + 1),
    "nested far too deep": lambda: nested(5000),
    "classes inside each other": lambda: {"x": links(60)},
    "links without end": lambda: links(5000),
    "half a pair of surrogates": lambda: "\ud800",
    "a class that cannot be sent": object,
}


@pytest.mark.parametrize("what", POISON)
def test_what_a_hook_cannot_produce_is_its_records_fault(what: str) -> None:
    class Poison(Computation):
        n: int = state(0)

        def process_record(self, record, ctx):
            self.n += 1
            ctx.produce(POISON[what]() if record.value["n"] == 2 else self.n)

    with Harness(one(Poison, errors=to("dead"))) as h:
        h.send("in", *(at(n, n=n) for n in (1, 2, 3)))
        assert h.read("out") == [1, 2]
        (letter,) = h.read("dead")
        assert letter["value"]["n"] == 2 and "InvalidRecord" in letter["error"]
    h = Harness(one(Poison))
    h.send("in", at(2, n=2))
    with pytest.raises(UserCodeError, match="the produced value"):
        h.settle()


@pytest.mark.parametrize("what", ["nested far too deep", "links without end"])
def test_what_a_hook_cannot_keep_is_its_records_fault(what: str) -> None:
    class Keep(Computation):
        kept: Any = state(None)

        def process_record(self, record, ctx):
            # What another record of the key replaces before it is stored is nobody's fault.
            self.kept = POISON[what]() if record.value["n"] == 3 else record.value["n"]
            ctx.produce(record.value["n"])

    with Harness(one(Keep, errors=to("dead"))) as h:
        h.send("in", *(at(n, n=n) for n in (1, 2, 3)))
        assert h.read("out") == [1, 2] and h.state("C", "a").kept == 2
        (letter,) = h.read("dead")
        assert "cannot be stored" in letter["error"]


def test_state_is_nested_no_deeper_than_it_can_be_read_from_anywhere() -> None:
    class Grow(Computation):
        kept: Any = state(None)

        def process_record(self, record, ctx):
            self.kept = [self.kept]

    with Harness(one(Grow, outputs=(), errors=to("dead")), epoch_records=20) as h:
        h.send("in", *(at(n) for n in range(CELL_NESTED_MAX + 30)))
        assert len(h.read("dead")) == 30


def test_an_error_whose_text_cannot_be_encoded_is_told_all_the_same() -> None:
    class Raise(Computation):
        def process_record(self, record, ctx):
            ctx.count("odd \ud800")
            raise ValueError("half \ud800 a pair")

    with Harness(one(Raise, errors=to("dead"))) as h:
        h.send("in", at(1))
        (letter,) = h.read("dead")
        assert "half \\ud800 a pair" in letter["error"]
    h = Harness(one(Raise))
    h.send("in", at(1))
    with pytest.raises(UserCodeError, match="half"):
        h.settle()


def test_keys_of_tuples_inside_tuples_have_a_bottom() -> None:
    def key(value: Any) -> Any:
        found: Any = "x"
        for _ in range(value["n"]):
            found = (found,)
        return found

    with Harness(one(Count, key=key, errors=to("dead"))) as h:
        h.send("in", *(at(i, n=n) for i, n in enumerate((1, 16, 17, 500, 5000))))
        assert len(h.read("out")) == 2 and len(h.read("dead")) == 3


def test_a_letter_about_a_value_at_the_limit_is_a_record_too() -> None:
    class Refuse(Computation):
        def process_record(self, record, ctx):
            raise ValueError("no")

    p = one(Refuse, errors=to("dead"))
    p.compute(Pass, inputs={"dead": lambda letter: "all"}, outputs="again", errors=to("deader"))
    with Harness(p) as h:
        h.send("in", at(1, x=nested(NESTED_MAX - 1)))
        (letter,) = h.read("dead")
        assert letter["value"]["x"] == nested(NESTED_MAX - 1)
        # Wrapped once more than a record may be nested: that is told of the letter.
        assert len(h.read("again")) + len(h.read("deader")) == 1


def test_a_table_whose_columns_are_nested_too_deep_is_the_hooks_fault() -> None:
    class Deep(Computation):
        def process_table(self, table, ctx):
            ctx.produce_table({"x": [nested(70)]})

    h = Harness(one(Deep))
    h.send("in", at(1))
    with pytest.raises(UserCodeError, match="column 'x' is nested more than 60 deep"):
        h.settle()
