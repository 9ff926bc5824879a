"""What editors and mypy see: a schema gives the stream its type, and lambdas have it."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent.parent

SNIPPET = """
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec

from headrace import Pipeline, sources


class Click(msgspec.Struct):
    user: str
    price: float


@dataclass
class Visit:
    page: str


class Row(TypedDict):
    name: str


p = Pipeline("typed")
clicks = p.read("clicks", sources.jsonl("in"), schema=Click)
visits = p.stream("visits", schema=Visit)
rows = p.read("rows", sources.jsonl("in"), schema=Row)
anything = p.read("anything", sources.jsonl("in"))
reveal_type(clicks)
reveal_type(visits.map(lambda visit: visit.page))
reveal_type(rows.map(lambda row: row["name"]))
reveal_type(anything.map(lambda value: 1))
reveal_type(clicks.filter(lambda click: click.price > 1).map(lambda click: click.user))
clicks.map(lambda click: click.usr)
clicks.key_by("user").map(lambda click: click.pric)
"""


def test_mypy_knows_the_values_of_typed_streams(tmp_path: Path) -> None:
    path = tmp_path / "snippet.py"
    path.write_text(SNIPPET)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-incremental", "--follow-imports=silent", str(path)],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "MYPYPATH": str(ROOT / "src"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=280,
    )
    said = done.stdout
    assert 'Revealed type is "headrace.pipeline.fluent.stream.Stream[snippet.Click]"' in said, said
    assert said.count('Stream[str]"') == 3, said
    assert 'Stream[int]"' in said, said
    assert '"Click" has no attribute "usr"; maybe "user"?' in said
    assert '"Click" has no attribute "pric"; maybe "price"?' in said
    assert "Found 2 errors" in said, said
