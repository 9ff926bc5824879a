"""What documents name exists: files, rooms, functions, failpoints, rules, words.

Paths in documents are relative to the root or to src/headrace. `room/module.name` means a
function, a class or a method of a module there.
"""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest
from tests.docs.documents import (
    DOCUMENTS,
    EXAMPLES,
    GLOSSARY,
    PAGES,
    PROTOCOL,
    ROOT,
    SOURCE,
    inline_code,
    reference,
    text_of,
)

import headrace
from headrace import failpoints

FILE = re.compile(r"[\w./-]+\.(py|md|toml|txt|yml)")
ROOM = re.compile(r"[a-z_]+(/[a-z_]+)*/")
NAME_IN_MODULE = re.compile(r"([a-z_]+(?:/[a-z_]+)+)\.([A-Za-z_]+(?:\.[A-Za-z_]+)*)")
FAILPOINT = re.compile(r"(before|after)-[a-z-]+")
RULE = re.compile(r"\b[ABCDEFHI]\d{1,2}\b")
CITATION = re.compile(r"\([A-I]\d+(, [A-I]\d+)*\)")
OF_READERS = {"word_count.py", "shop_totals.py", "test_shop_totals.py", "out/"}
"""Files that a page tells its reader to make, and the directory that `make` makes."""

README_BYTES_MAX = 9_000
ARCHITECTURE_BYTES_MAX = 16_000


def test_files_and_rooms_that_documents_name_exist() -> None:
    missing = [
        f"{document}:{line}: {code}"
        for document in DOCUMENTS
        for line, code in inline_code(document)
        if (FILE.fullmatch(code) or ROOM.fullmatch(code))
        and code not in OF_READERS
        and not any((place / code).exists() for place in (ROOT, SOURCE))
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


def test_every_rule_that_code_cites_is_explained_in_the_protocol() -> None:
    explained = set(re.findall(r"^\*\*([A-I]\d{1,2})\b", text_of(PROTOCOL), re.MULTILINE))
    cited = {
        (f"{path.relative_to(ROOT)}", rule)
        for place in (SOURCE, ROOT / "tests")
        for path in place.rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "protocol" in line.lower() or CITATION.search(line)
        for rule in RULE.findall(line)
    }
    assert len(cited) > 20  # Otherwise the pattern no longer fits how comments write them.
    assert {f"{path}: {rule}" for path, rule in cited if rule not in explained} == set()


def test_every_part_of_the_protocol_that_code_cites_exists() -> None:
    parts = set(re.findall(r"^## ([A-I])\. ", text_of(PROTOCOL), re.MULTILINE))
    cited = {
        part
        for path in SOURCE.rglob("*.py")
        for part in re.findall(r"(?i:protocol) ([A-I])\b", path.read_text(encoding="utf-8"))
    }
    assert cited
    assert cited - parts == set()


def test_the_ratios_of_the_readme_are_those_of_the_benchmarks() -> None:
    ratio = re.compile(r"[\d.]+ x its [\w ]*\w")
    shown = ratio.findall(text_of("README.md"))
    assert len(shown) == 5
    measured = set(ratio.findall(text_of("docs/benchmarks.md")))
    assert set(shown) - measured == set()


def test_every_rule_that_documents_cite_is_explained_in_the_protocol() -> None:
    explained = set(re.findall(r"^\*\*([A-I]\d{1,2})\b", text_of(PROTOCOL), re.MULTILINE))
    cited = {rule for document in DOCUMENTS for rule in RULE.findall(text_of(document))}
    assert cited - explained == set()


def test_the_readme_and_the_architecture_stay_short() -> None:
    assert len(text_of("README.md").encode()) <= README_BYTES_MAX
    assert len(text_of("ARCHITECTURE.md").encode()) <= ARCHITECTURE_BYTES_MAX


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_says_what_it_shows_and_is_named_in_the_readme(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith('"""')
    assert f"examples/{path.name}" in text_of("README.md")


def test_the_glossary_gives_every_word_one_meaning() -> None:
    lines = [line for line in text_of(GLOSSARY).splitlines() if line.startswith("- ")]
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


def test_the_glossary_has_one_copy() -> None:
    assert not (ROOT / "GLOSSARY.md").exists()
    assert [page for page in PAGES if page.lower().endswith("glossary.md")] == [GLOSSARY]


def test_the_changelog_knows_the_version() -> None:
    assert headrace.__version__ in text_of("CHANGELOG.md")
    assert "## [Unreleased]" in text_of("CHANGELOG.md")


@pytest.mark.parametrize("namespace", ["", "sources", "sinks", "testing", "agg"])
def test_the_reference_has_every_public_name(namespace: str) -> None:
    module = getattr(headrace, namespace) if namespace else headrace
    page = reference()[f"docs/reference/{namespace or 'headrace'}.md"]
    headings = set(re.findall(r"^## (\w+)$", page, re.MULTILINE))
    public = getattr(module, "__all__", None) or {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    }
    assert headings == set(public)


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
