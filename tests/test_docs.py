"""What the documents say is true of the code: examples run, and whatever they name exists.

Paths in documents are relative to the root or to src/headrace. `room/module.name` means a
function, a class or a method of a module there.

Every Python block of the README runs, in order and in one module whose line numbers are the
README's own, so a failure points at the README's line. A comment in front of a block says where
it is otherwise: `<!-- compiled only -->`, or the example file whose code it must be.
"""

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import click
import pytest

import headrace
from headrace import Checkpoint, failpoints
from headrace.cli.main import cli
from headrace.testing import Harness

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "headrace"
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "GLOSSARY.md", "CHANGELOG.md")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

COMPILED_ONLY = "compiled only"

INLINE_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
FILE = re.compile(r"[\w./-]+\.(py|md|toml|txt)")
ROOM = re.compile(r"[a-z_]+(/[a-z_]+)*/")
NAME_IN_MODULE = re.compile(r"([a-z_]+(?:/[a-z_]+)+)\.([A-Za-z_]+(?:\.[A-Za-z_]+)*)")
FAILPOINT = re.compile(r"(before|after)-[a-z-]+")
RULE = re.compile(r"\b[ABCDEFH]\d{1,2}\b")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the comment in front of it, its first line and its text."""

    language: str
    comment: str
    line: int
    text: str


def test_files_and_rooms_that_documents_name_exist() -> None:
    missing = [
        f"{document}:{line}: {code}"
        for document in DOCUMENTS
        for line, code in inline_code(document)
        if (FILE.fullmatch(code) or ROOM.fullmatch(code))
        and not any((place / code).exists() for place in (ROOT, SOURCE))
    ]
    assert missing == []


def test_links_between_documents_lead_somewhere() -> None:
    missing = [
        f"{document}: {target}"
        for document in DOCUMENTS
        for target in LINK.findall(text_of(document))
        if "://" not in target and not (ROOT / target).exists()
    ]
    assert missing == []


def test_functions_that_documents_name_exist() -> None:
    missing = []
    named = 0
    for document in DOCUMENTS:
        for line, code in inline_code(document):
            found = NAME_IN_MODULE.fullmatch(code)
            if found is None or FILE.fullmatch(code):
                continue
            named += 1
            if not has_name(found[1], found[2]):
                missing.append(f"{document}:{line}: {code}")
    assert missing == []
    assert named > 20  # Otherwise the pattern no longer fits how documents write them.


def test_failpoints_are_named_as_they_are() -> None:
    architecture = [c for _, c in inline_code("ARCHITECTURE.md") if FAILPOINT.fullmatch(c)]
    assert architecture == list(failpoints.NAMES)


def test_every_rule_that_a_comment_cites_is_explained() -> None:
    explained = set(RULE.findall(text_of("ARCHITECTURE.md").partition("# The rules by")[2]))
    unexplained = {
        f"{path.relative_to(ROOT)}: {rule}"
        for path in SOURCE.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "protocol" in line.lower() or re.search(r"\([A-H]\d+(, [A-H]\d+)*\)", line)
        for rule in RULE.findall(line)
        if rule not in explained
    }
    assert unexplained == set()


def test_commands_of_the_readme_have_the_options_they_use() -> None:
    lines = [
        line
        for block in blocks("README.md")
        if block.language == "sh"
        for line in block.text.splitlines()
    ]
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in lines:
        words = line.partition("#")[0].split()
        if words[0] == "make":
            assert words[1] in targets, line
        else:
            assert words[0] == "headrace", line
            check_options(words[1:], line)


def test_the_two_commands_stand_at_the_top_of_the_readme() -> None:
    first = next(blocks("README.md"))
    assert [line.split()[:2] for line in first.text.splitlines()] == [
        ["make", "demo"],
        ["make", "test"],
    ]
    assert first.line < 5


def test_every_python_block_of_the_readme_compiles() -> None:
    found = python_blocks()
    assert len(found) > 5
    for block in found:
        compile(block.text, f"README.md, from line {block.line}", "exec")


def test_the_examples_of_the_readme_run(readme: ModuleType) -> None:
    tests = [value for name, value in vars(readme).items() if name.startswith("test_")]
    assert tests
    for test in tests:
        test()


def test_the_readme_says_the_truth_about_order(readme: ModuleType) -> None:
    with Harness(readme.ticks) as h:
        h.send("ticks", tick(3), tick(1))
        h.send("ticks", tick(2), tick(4))
        h.end()
        assert h.state("Latest", "mill").prices == [1, 2, 3, 4]


def test_the_readme_says_the_truth_about_errors_and_duplicates(readme: ModuleType) -> None:
    def transfer(number: int, cents: int) -> dict[str, object]:
        return {"id": number, "account": "ada", "cents": cents}

    with Harness(readme.bank) as h:
        h.send("transfers", transfer(1, 5), transfer(2, -9), transfer(1, 5), transfer(3, 2))
        assert h.state("Balance", "ada").cents == 7
        (letter,) = h.read("refused")
        assert letter["value"]["id"] == 2
        assert letter["error"] == "ValueError: overdrawn"
        assert set(letter) == {
            "computation", "stream", "key", "value", "timestamp", "epoch", "error", "traceback",
        }  # fmt: skip


def test_the_readme_says_the_truth_about_tables(readme: ModuleType) -> None:
    def sale(shop: str, cents: int) -> dict[str, object]:
        return {"shop": shop, "cents": cents, "at": 1}

    with Harness(readme.shops) as h:
        h.send("sales", sale("a", 3), sale("b", 5), sale("a", 4))
        h.send("sales", sale("a", 1))
        totals = {row["shop"]: row["cents"] for row in h.read("totals")}
        assert totals == {"a": 8, "b": 5}


def test_the_readme_says_the_truth_about_feedback(readme: ModuleType) -> None:
    with Harness(readme.loop) as h:
        h.send("numbers", {"id": "a", "n": 40})
        assert h.state("Halve", "a").steps == 6  # 40, 20, 10, 5, 2, 1
        assert h.epoch >= 6


def test_an_example_in_the_readme_is_the_example_that_runs() -> None:
    shown = {block.comment: block.text for block in python_blocks() if block.comment in examples()}
    assert "examples/word_count.py" in shown
    for name, text in shown.items():
        example = (ROOT / name).read_text(encoding="utf-8")
        assert example.partition('"""\n\n')[2] == text, f"{name} and the README have parted"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_says_what_it_shows_and_is_named_in_the_readme(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith('"""')
    assert f"examples/{path.name}" in text_of("README.md")


@pytest.mark.spark
def test_word_count_runs_on_spark(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("the mill the wheel\nThe stream\n")
    (tmp_path / "b.md").write_text("wheel of the mill\n")
    [background] = [block.text for block in python_blocks() if "p.start(" in block.text]
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


def test_the_state_that_the_readme_shows_is_what_its_word_count_leaves() -> None:
    words = [word for path in ROOT.glob("*.md") for word in path.read_text().lower().split()]
    [block] = [block.text for block in python_blocks() if "Checkpoint(" in block.text]
    assert f"  # {{'count': {words.count('mill')}}}\n" in block


def test_the_glossary_gives_every_word_one_meaning() -> None:
    lines = [line for line in text_of("GLOSSARY.md").splitlines() if line.startswith("- ")]
    found = [re.fullmatch(r"- \*\*([a-z -]+)\*\*: (\S.*)", line) for line in lines]
    assert all(found), "a glossary line is `- **word**: meaning`"
    words = [match[1] for match in found if match]
    assert len(words) == len(set(words))
    needed = {
        "record", "stream", "computation", "injector", "sink", "pipeline", "epoch", "key space",
        "interval", "ring", "slot", "level", "segment", "label", "attempt", "generation",
        "determinant", "host", "mark", "bound", "reached", "chain", "parcel", "envelope", "delta",
        "ledger", "origin", "fused", "staged", "outbox", "claim", "high-water",
    }  # fmt: skip
    assert needed - set(words) == set()


def test_the_changelog_knows_the_version() -> None:
    assert headrace.__version__ in text_of("CHANGELOG.md")
    assert "## [Unreleased]" in text_of("CHANGELOG.md")


@pytest.fixture(scope="module")
def readme(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The Python blocks of the README as one module."""
    lines: list[str] = []
    for block in python_blocks():
        if block.comment != COMPILED_ONLY:
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.text.splitlines()
    path = tmp_path_factory.mktemp("readme") / "README.py"
    path.write_text("\n".join(lines), encoding="utf-8")
    name = "readme_examples"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        pytest.fail(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # State annotations are resolved through the module.
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[name]


def tick(price: int) -> dict[str, object]:
    return {"symbol": "mill", "price": price, "at": price}


def examples() -> set[str]:
    return {f"examples/{path.name}" for path in EXAMPLES}


def environment(*also: Path) -> dict[str, str]:
    """This process's environment, in which a child finds the same headrace."""
    paths = [str(SOURCE.parent), *map(str, also), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def check_options(words: list[str], line: str) -> None:
    command: click.Command = cli
    while isinstance(command, click.Group):
        name = words.pop(0)
        assert name in command.commands, line
        command = command.commands[name]
    known = {option for parameter in command.params for option in parameter.opts}
    for word in words:
        if word.startswith("--"):
            assert word in known, f"{word} in: {line}"


def has_name(module: str, names: str) -> bool:
    dotted = f"headrace.{module.replace('/', '.')}"
    if importlib.util.find_spec(dotted) is None:
        return False
    found = importlib.import_module(dotted)
    for name in names.split("."):
        if not hasattr(found, name):
            return False
        found = getattr(found, name)
    return True


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def inline_code(document: str) -> Iterator[tuple[int, str]]:
    """(line, code) of everything in single backticks outside of fenced blocks."""
    fenced = False
    for number, line in enumerate(text_of(document).splitlines(), start=1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            for code in INLINE_CODE.findall(line):
                yield number, code


def python_blocks() -> list[Block]:
    return [block for block in blocks("README.md") if block.language == "python"]


def blocks(document: str) -> Iterator[Block]:
    language: str | None = None
    comment = before = ""
    first = 0
    inside: list[str] = []
    for number, line in enumerate(text_of(document).splitlines(), start=1):
        if not line.startswith("```"):
            if language is not None:
                inside.append(line)
            before = line
        elif language is None:
            language, first, inside = line.removeprefix("```"), number + 1, []
            found = re.fullmatch(r"<!-- (.+) -->", before)
            comment = found[1] if found else ""
        else:
            yield Block(language, comment, first, "\n".join(inside) + "\n")
            language = None
