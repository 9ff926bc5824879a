"""`headrace check` and `headrace new`: what a newcomer types first, without Spark."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import cli

MODULE = """
from headrace import Computation, Pipeline, agg, sinks, sources, state, to, tumbling

class Count(Computation):
    count: int = state(0)

    def process_record(self, record, ctx):
        if record.value["n"] == 7:
            raise ValueError("seven")
        self.count += 1
        ctx.count("seen")
        ctx.produce({"key": ctx.key, "count": self.count})

p = Pipeline("first")
p.read("numbers", sources.jsonl("in/*.jsonl", timestamp="at"), errors=to("bad"))
p.compute(Count, inputs={"numbers": "k"}, outputs="counts", errors=to("bad"))
p.stream("counts").write(sinks.jsonl("out/counts"))
(p.stream("numbers").key_by("k").window(tumbling("1h")).aggregate(n=agg.count()).named("hours"))

failing = Pipeline("failing")
failing.read("numbers", sources.jsonl("in/0.jsonl", timestamp="at"))
failing.compute(Count, inputs={"numbers": "k"}, outputs="counts")
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "in").mkdir()
    for file in range(2):
        rows = [
            {"k": f"k{n % 3}", "n": n + 10 * file, "at": f"2026-01-01T00:{n:02d}:00Z"}
            for n in range(50)
        ]
        text = "\n".join(map(json.dumps, rows))
        (tmp_path / "in" / f"{file}.jsonl").write_text(("no json\n" if file else "") + text + "\n")
    (tmp_path / "checked.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "checked", raising=False)
    return tmp_path


def headrace(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, prog_name="headrace")


def everything(place: Path) -> set[str]:
    found = {str(path.relative_to(place)) for path in place.rglob("*")}
    return {name for name in found if "__pycache__" not in name}


def test_a_check_says_what_comes_out_of_every_stream_and_leaves_no_trace(place: Path) -> None:
    before = everything(place)
    answer = headrace("check", "checked:p", "--records", "1000", "--json")
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    assert everything(place) == before
    assert found["inputs"]["numbers"]["records"] == 100
    assert found["inputs"]["numbers"]["splits"] == found["inputs"]["numbers"]["splits_known"] == 2
    counts = found["streams"]["counts"]
    assert (counts["rows"], counts["at_end"], len(counts["samples"])) == (99, 0, 3)
    bad = found["streams"]["bad"]
    assert (bad["rows"], bad["dead_letters"]) == (2, True)
    assert found["streams"]["hours"]["at_end"] == 3  # windows close with the input
    assert found["dead"] == 2 and found["counts"] == {"Count.seen": 99}
    computation = found["computations"]["Count"]
    assert computation["keys"] == 3 and computation["records"] == 100
    assert computation["watermark"] == 1767228540000000  # of the newest record, before the end


def test_a_check_reads_few_records_of_each_source(place: Path) -> None:
    found = json.loads(headrace("check", "checked:p", "--records", "10", "--json").stdout)
    assert found["inputs"]["numbers"]["records"] <= 12
    assert found["epochs"] > 2  # state is carried from epoch to epoch


def test_a_check_shows_samples_as_text(place: Path) -> None:
    answer = headrace("check", "checked:p")
    for said in (
        "without Spark; nothing was written",
        "'k0': {'count': ",
        "{'key': 'k",
        "bad: 2 rows, dead letters",
        "ValueError: seven",
        "2 dead letters",
        "Note: 2 dead letters went to 'bad', which nothing reads",
    ):
        assert said in answer.output, said


def test_a_check_reads_both_sources_that_follow_each_other(place: Path) -> None:
    for file in range(20):
        (place / f"old-{file:02d}.txt").write_text("old\n" * 5)
    (place / "new.txt").write_text("new\n" * 50)
    (place / "empty.txt").write_text("")
    (place / "following.py").write_text(
        "from headrace import Pipeline, sources\n"
        "def p(new):\n"
        "    p = Pipeline('following')\n"
        "    p.read('lines', sources.then(sources.text('old-*.txt'), sources.text(new)))\n"
        "    p.stream('lines').map(str.upper).named('shown')\n"
        "    return p\n"
        "both, lacking = p('new.txt'), p('empty.txt')\n"
    )
    found = json.loads(headrace("check", "following:both", "--records", "40", "--json").stdout)
    one = found["inputs"]["lines"]
    assert (one["splits"], one["splits_known"]) == (8, 21)
    (old, of_old), (new, of_new) = one["parts"]
    assert "old-*.txt" in old and "new.txt" in new and of_new == 5 and of_old == 35
    text = headrace("check", "following:both").stdout
    assert "    13 records of text(new.txt)" in text, text
    text = headrace("check", "following:lacking").stdout
    assert "0 records of text(empty.txt): is there input where it looks?" in text, text


def test_a_check_of_code_that_fails_names_the_record(place: Path) -> None:
    answer = headrace("check", "checked:failing")
    assert answer.exit_code == 1
    assert "'Count'" in answer.output and "ValueError: seven" in answer.output


def test_a_check_makes_no_calls_unless_told_to(place: Path) -> None:
    (place / "calling.py").write_text(
        "from headrace import Computation, Pipeline, sources\n"
        "class Ask(Computation):\n"
        "    def process_record(self, record, ctx):\n"
        "        ctx.http.get('http://127.0.0.1:1/')\n"
        "p = Pipeline('calling')\n"
        "p.read('numbers', sources.memory([1]))\n"
        "p.compute(Ask, inputs={'numbers': str})\n"
    )
    answer = headrace("check", "calling:p")
    assert answer.exit_code == 1 and "--calls" in answer.output


def test_a_new_project_passes_its_own_test_and_check(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headrace.cli.main"]
    made = subprocess.run(
        [*command, "new", "page-hits"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "headrace check page_hits:p" in made.stdout
    project = tmp_path / "page-hits"
    assert "NAME" not in "".join(p.read_text() for p in project.rglob("*") if p.is_file())
    checked = subprocess.run(
        [*command, "check", "page_hits:p"], cwd=project, capture_output=True, text=True
    )
    assert checked.returncode == 0, checked.stderr
    assert "popular: 1 row" in checked.stdout and "1 dead letter" in checked.stdout
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project, capture_output=True, text=True,
    )  # fmt: skip
    assert tested.returncode == 0, tested.stdout
    assert "2 passed" in tested.stdout


def test_a_new_project_never_touches_what_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    answer = headrace("new", "taken")
    assert answer.exit_code == 1 and "taken exists" in answer.output
    hiding = ("json", "headrace", "pyspark", "msgspec", "pytest")
    for wrong in (*hiding, "9lives", "x" * 300, "a b", "../.x", "no/such/place"):
        answer = headrace("new", wrong)
        assert answer.exit_code == 1 and answer.output.startswith("Error: "), wrong
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    assert list((tmp_path / "taken").iterdir()) == []


def test_long_records_do_not_cut_the_sample_short(place: Path) -> None:
    lines = [{"k": "a" * 20_000, "n": n, "at": n} for n in range(60)]
    (place / "in" / "1.jsonl").unlink()
    (place / "in" / "0.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\nno JSON\n")
    found = json.loads(headrace("check", "checked:p", "--records", "40", "--json").output)
    assert 40 <= found["inputs"]["numbers"]["records"] <= 50
    found = json.loads(headrace("check", "checked:p", "--json").output)
    assert found["inputs"]["numbers"]["records"] == 60
    assert found["streams"]["bad"]["rows"] == 2  # the one that is no JSON, and seven
