"""Every Python block of the README and of the site runs, and says the truth.

The blocks of a page run in order, as one module. A comment in front of a block says where it is
otherwise: `<!-- compiled only -->`, or the example file whose code it must be.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.docs.documents import (
    COMPILED_ONLY,
    EXAMPLES,
    PAGES,
    ROOT,
    SOURCE,
    blocks,
    has_examples,
    module_of,
)

from headrace import Checkpoint, Pipeline, sinks
from headrace.model.sink import Delivery, Opening, Part
from headrace.model.values.rows import Rows
from headrace.store.disk import DiskStore
from headrace.store.memory import MemoryStore
from headrace.store.store import Store
from headrace.testing import Harness

OPERATING = "docs/operating.md"
EMPTY = "relaxed"
"""A pipeline that shows an option and has no streams."""

WITH_PYTHON = [page for page in PAGES if any(blocks(page, "python"))]
RUNNING = [page for page in PAGES if has_examples(page)]

KAFKA_TUTORIAL = "docs/kafka-tutorial.md"


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_every_python_block_compiles(page: str) -> None:
    for block in blocks(page, "python"):
        compile(block.text, f"{page}, from line {block.line}", "exec")


@pytest.mark.parametrize("page", RUNNING)
def test_the_examples_of_a_page_run(page: str) -> None:
    module = module_of(page)
    for test in [value for name, value in vars(module).items() if name.startswith("test_")]:
        test()


@pytest.mark.parametrize("page", RUNNING)
def test_the_pipelines_of_a_page_are_valid(page: str) -> None:
    for value in list(vars(module_of(page)).values()):
        if isinstance(value, Pipeline) and value.name != EMPTY:
            value.validate()


def test_pages_that_teach_have_examples_that_run() -> None:
    assert {"README.md", "docs/tutorial.md", "docs/guides/state.md"} <= set(RUNNING)
    tests = [name for page in RUNNING for name in vars(module_of(page)) if name.startswith("test_")]
    assert len(tests) >= 6


def test_blocks_are_of_a_language_that_a_test_looks_at() -> None:
    # All blocks of that page are run, or compared, by tests/servers/test_kafka_tutorial.py.
    pages = [page for page in PAGES if page != KAFKA_TUTORIAL]
    found = {f"{page}: {b.language}" for page in pages for b in blocks(page)}
    assert {line for line in found if line.partition(": ")[2] not in ("python", "sh", "")} == set()
    followed = {b.language for b in blocks(KAFKA_TUTORIAL)}
    assert followed <= {"python", "sh", "bash", "json", "text"}


def test_few_blocks_are_only_compiled() -> None:
    compiled = [
        f"{page}:{block.line}"
        for page in PAGES
        for block in blocks(page, "python")
        if block.comment == COMPILED_ONLY and page != KAFKA_TUTORIAL
    ]
    assert len(compiled) <= 2, "these need a checkpoint on disk; others can run"


def test_the_guide_says_the_truth_about_order() -> None:
    def tick(price: int) -> dict[str, object]:
        return {"symbol": "mill", "price": price, "at": price}

    with Harness(module_of("docs/guides/order.md").ticks) as h:
        h.send("ticks", tick(3), tick(1))
        h.send("ticks", tick(2), tick(4))
        h.end()
        assert h.state("Latest", "mill").prices == [1, 2, 3, 4]


def test_the_guide_says_the_truth_about_errors_and_duplicates() -> None:
    def transfer(number: int, cents: int) -> dict[str, object]:
        return {"id": number, "account": "ada", "cents": cents}

    with Harness(module_of("docs/guides/errors.md").bank) as h:
        h.send("transfers", transfer(1, 5), transfer(2, -9), transfer(1, 5), transfer(3, 2))
        assert h.state("Balance", "ada").cents == 7
        (letter,) = h.read("refused")
        assert letter["value"]["id"] == 2
        assert letter["error"] == "ValueError: overdrawn"
        assert set(letter) == {
            "computation", "stream", "key", "value", "timestamp", "epoch", "error", "traceback",
        }  # fmt: skip


def test_the_guide_says_the_truth_about_tables() -> None:
    def sale(shop: str, cents: int) -> dict[str, object]:
        return {"shop": shop, "cents": cents, "at": 1}

    with Harness(module_of("docs/guides/tables.md").shops) as h:
        h.send("sales", sale("a", 3), sale("b", 5), sale("a", 4))
        h.send("sales", sale("a", 1))
        totals = {row["shop"]: row["cents"] for row in h.read("totals")}
        assert totals == {"a": 8, "b": 5}


def test_the_guide_says_the_truth_about_feedback() -> None:
    with Harness(module_of("docs/guides/graphs.md").loop) as h:
        h.send("numbers", {"id": "a", "n": 40})
        assert h.state("Halve", "a").steps == 6  # 40, 20, 10, 5, 2, 1
        assert h.epoch >= 6


def published(place: Path | Store) -> Path | Store:
    """What a word count has published: one epoch large enough for a file, and a small one."""
    sink = sinks.jsonl(place)
    sink.open(Opening("checkpoint", 1, 0, MemoryStore()))
    for epoch, count in ((1, 5000), (2, 5)):
        values = [{"word": f"word {n}", "count": n} for n in range(count)]
        data = sink.encode(Rows.of(values, [0] * count))
        sink.deliver(Delivery(epoch, "checkpoint", [Part("Count/0", "", lambda data=data: data)]))
    return place


@pytest.mark.parametrize("kind", ["directory", "store"])
def test_the_guide_says_the_truth_about_reading_output(kind: str, tmp_path: Path) -> None:
    guide = module_of("docs/guides/output.md")
    directory = tmp_path / "out"
    place = published(directory if kind == "directory" else DiskStore(directory))
    table, cursor = guide.counts_so_far(place)
    assert table.num_rows == 5005
    newer, end = guide.newer_counts(place, cursor)
    assert newer.num_rows == 0 and end == cursor
    assert guide.in_pandas(place)["count"].sum() == table["count"].to_pandas().sum()
    assert guide.in_polars(place).shape == (5005, 2)
    assert len(guide.in_duckdb(place)) == 5000
    assert len(guide.large_in_duckdb(place, tmp_path / "copies")) == 5005
    assert guide.large_in_polars(place, tmp_path / "copies").shape == (5005, 2)


@pytest.mark.spark
def test_the_guide_says_the_truth_about_reading_output_in_spark(tmp_path: Path) -> None:
    guide = module_of("docs/guides/output.md")
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = session.getOrCreate()
    for place in (published(tmp_path / "out"), published(DiskStore(tmp_path / "stored"))):
        assert guide.in_spark(place, spark).count() == 5005
        assert guide.large_in_spark(place, spark, tmp_path / "copies").count() == 5005


def test_an_example_in_the_readme_is_the_example_that_runs() -> None:
    files = {f"examples/{path.name}" for path in EXAMPLES}
    shown = {
        block.comment: (page, block.text)
        for page in PAGES
        for block in blocks(page, "python")
        if block.comment in files
    }
    assert shown["examples/word_count.py"][0] == "README.md"
    for name, (page, text) in shown.items():
        example = (ROOT / name).read_text(encoding="utf-8")
        assert example.partition('"""\n\n')[2] == text, f"{name} and {page} have parted"


def test_the_state_that_a_page_shows_is_what_word_count_leaves() -> None:
    words = [word for path in ROOT.glob("*.md") for word in path.read_text().lower().split()]
    [block] = [b.text for b in blocks(OPERATING, "python") if "Checkpoint(" in b.text]
    assert f"  # {{'count': {words.count('mill')}}}\n" in block


@pytest.mark.spark
def test_word_count_runs_on_spark(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("the mill the wheel\nThe stream\n")
    (tmp_path / "b.md").write_text("wheel of the mill\n")
    [background] = [b.text for b in blocks(OPERATING, "python") if "p.start(" in b.text]
    first = f"from word_count import p\n{background}\nprint(p.run(checkpoint='out/state'))"
    # A second start finds nothing left to do, and changes nothing.
    for program in (["-c", first], [str(ROOT / "examples" / "word_count.py")]):
        done = subprocess.run(
            [sys.executable, *program],
            cwd=tmp_path,
            env=environment(ROOT / "examples"),
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        lines = [
            line
            for path in sorted(tmp_path.glob("out/counts/epoch=*/*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        assert len(lines) == 10
        assert '{"word":"the","count":4}' in lines
    state = {
        key: fields["count"] for key, fields in Checkpoint(f"{tmp_path}/out/state").scan("Count")
    }
    assert state == {"the": 4, "mill": 2, "wheel": 2, "stream": 1, "of": 1}


def environment(*also: Path) -> dict[str, str]:
    """This process's environment, in which a child finds the same headrace."""
    paths = [str(SOURCE.parent), *map(str, also), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
