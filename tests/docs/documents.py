"""The documents of the repository, and what can be taken out of them: blocks, code, links.

A *page* is a document whose examples run: the README and every page under docs/.
"""

import functools
import importlib.util
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "headrace"
PROTOCOL = "docs/internals/protocol.md"
GLOSSARY = "docs/glossary.md"
REFERENCE = "docs/reference"
"""Generated, and not kept in the repository."""

PAGES = (
    "README.md",
    *sorted(
        str(path.relative_to(ROOT))
        for path in (ROOT / "docs").rglob("*.md")
        if (ROOT / REFERENCE) not in path.parents
    ),
)
DOCUMENTS = (*PAGES, "ARCHITECTURE.md", "CHANGELOG.md", "SECURITY.md")
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

COMPILED_ONLY = "compiled only"

INLINE_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the comment in front of it, its first line and its text."""

    language: str
    comment: str
    line: int
    text: str


def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def prose_lines(document: str, text: str | None = None) -> Iterator[tuple[int, str]]:
    """(line, text) of everything outside of fenced blocks."""
    fenced = False
    for number, line in enumerate((text or text_of(document)).splitlines(), start=1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


def inline_code(document: str) -> Iterator[tuple[int, str]]:
    """(line, code) of everything in single backticks outside of fenced blocks."""
    for number, line in prose_lines(document):
        for code in INLINE_CODE.findall(line):
            yield number, code


def blocks(document: str, language: str | None = None) -> Iterator[Block]:
    found: str | None = None
    comment = before = ""
    first = 0
    inside: list[str] = []
    for number, line in enumerate(text_of(document).splitlines(), start=1):
        if not line.startswith("```"):
            if found is not None:
                inside.append(line)
            before = line
        elif found is None:
            found, first, inside = line.removeprefix("```"), number + 1, []
            match = re.fullmatch(r"<!-- (.+) -->", before)
            comment = match[1] if match else ""
        else:
            if language in (None, found):
                yield Block(found, comment, first, "\n".join(inside) + "\n")
            found = None


@functools.cache
def module_of(page: str) -> ModuleType:
    """The Python blocks of a page, run in order, as one module.

    Line numbers are those of the page, so a failure points at the page's own line.
    """
    lines: list[str] = []
    for block in blocks(page, "python"):
        if block.comment != COMPILED_ONLY:
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.text.splitlines()
    name = "examples_of_" + re.sub(r"\W", "_", page.removesuffix(".md")).lower()
    path = Path(directory().name) / f"{name}.py"
    path.write_text("\n".join(lines), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # State annotations are resolved through the module.
    spec.loader.exec_module(module)
    return module


@functools.cache
def directory() -> tempfile.TemporaryDirectory[str]:
    """Where the modules of pages lie until the tests end: fingerprints read their source."""
    return tempfile.TemporaryDirectory(prefix="headrace-pages-")


def has_examples(page: str) -> bool:
    return any(block.comment != COMPILED_ONLY for block in blocks(page, "python"))


@functools.cache
def reference() -> dict[str, str]:
    """The generated pages of the reference: path -> text."""
    tool = ROOT / "tools" / "reference.py"
    spec = importlib.util.spec_from_file_location("headrace_reference_tool", tool)
    if spec is None or spec.loader is None:
        raise RuntimeError(f"{tool} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {
        f"{REFERENCE}/{module.page_name(namespace)}": module.page(namespace)
        for namespace in module.NAMESPACES
    }
