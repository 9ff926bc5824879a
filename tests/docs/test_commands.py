"""Shell lines in documents name commands, options and make targets that exist."""

import re

import click
import pytest
from tests.docs.documents import DOCUMENTS, PAGES, ROOT, blocks, inline_code

from headrace.cli.main import cli

CONTEXT = click.Context(cli)
SHELL = [page for page in PAGES if any(blocks(page, "sh"))]
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", SHELL)
def test_shell_lines_use_what_exists(page: str) -> None:
    for block in blocks(page, "sh"):
        for line in block.text.splitlines():
            words = line.partition("#")[0].split()
            if words[0] == "make":
                assert words[1] in TARGETS, line
            else:
                assert words[0] == "headrace", line
                check_options(words[1:], line)


def test_commands_inside_of_sentences_exist() -> None:
    named = 0
    for document in DOCUMENTS:
        for line, code in inline_code(document):
            words = code.split()
            if words[0] == "make" and len(words) > 1:
                assert words[1] in TARGETS, f"{document}:{line}: {code}"
                named += 1
            elif words[0] == "headrace" and len(words) > 1 and words[1].isalpha():
                check_options(words[1:], f"{document}:{line}: {code}")
                named += 1
    assert named > 20  # Otherwise the pattern no longer fits how documents write them.


def test_options_named_by_themselves_exist() -> None:
    known = set(options_of(cli))
    missing = [
        f"{document}:{line}: {code}"
        for document in PAGES
        for line, code in inline_code(document)
        if re.match(r"--[a-z]", code) and code.split()[0] not in known
    ]
    assert missing == []


def test_the_two_commands_stand_at_the_top_of_the_readme() -> None:
    first = next(blocks("README.md"))
    assert [line.split()[:2] for line in first.text.splitlines()] == [
        ["make", "demo"],
        ["make", "test"],
    ]
    assert first.line < 5


def check_options(words: list[str], line: str) -> None:
    command: click.Command = cli
    while isinstance(command, click.Group) and words:
        name = words.pop(0)
        inner = command.get_command(CONTEXT, name)
        assert inner is not None, line
        command = inner
    known = {o for each in command.params for o in (*each.opts, *each.secondary_opts)}
    for word in words:
        if word.startswith("--"):
            assert word in known, f"{word} in: {line}"


def options_of(command: click.Command) -> list[str]:
    own = [o for each in command.params for o in (*each.opts, *each.secondary_opts)]
    if isinstance(command, click.Group):
        for name in command.list_commands(CONTEXT):
            own += options_of(command.get_command(CONTEXT, name))
    return own
