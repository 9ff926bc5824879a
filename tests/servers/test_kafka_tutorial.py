"""The Kafka tutorial, followed to the letter: its files are saved, and every command is run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.documents import ROOT, Block, blocks
from tests.servers.kafka import thorough

from headrace.bench.servers.processes import free_port

PAGE = "docs/kafka-tutorial.md"
PATIENCE_S = 240.0
_DONE = "--done--"


class Shell:
    """A person's terminal: one bash, into which commands are typed."""

    def __init__(self, where: Path) -> None:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        self.process = subprocess.Popen(
            ["bash"], cwd=where, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, bufsize=1,
        )  # fmt: skip

    def type(self, command: str) -> tuple[int, str]:
        """Runs a command; its exit status, and what it says."""
        if self.process.stdin is None or self.process.stdout is None:
            raise RuntimeError("a shell without pipes")
        self.process.stdin.write(f"{command}\necho; echo {_DONE} $?\n")
        self.process.stdin.flush()
        said: list[str] = []
        for line in self.process.stdout:
            if line.startswith(_DONE):
                return int(line.split()[1]), "".join(said).strip("\n")
            said.append(line)
        raise RuntimeError(f"the shell has ended: {''.join(said)}")


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.type("kill -9 $(jobs -p); headrace kafka stop")
    made.process.kill()


def steps() -> Iterator[tuple[Block, str]]:
    """The blocks of the page, each with the block of text that follows it at once."""
    found = list(blocks(PAGE))
    for block, after in zip(found, [*found[1:], None], strict=True):
        shown = after.text if after is not None and after.language == "text" else ""
        if block.language != "text":
            yield block, shown


def by_key(lines: str) -> dict[str, list[str]]:
    """Messages by key: those of a key are in order, keys are not."""
    found = defaultdict(list)
    for line in filter(None, lines.splitlines()):
        key, _, value = line.partition("\t")
        found[key].append(value)
    return dict(found)


@thorough
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_command_of_the_tutorial_works_and_says_what_the_page_says(
    shell: Shell, tmp_path: Path
) -> None:
    ports = {"9092": str(free_port()), "9095": str(free_port())}
    project, ran = tmp_path / "shop-totals", []

    def here(text: str) -> str:
        for given, free in ports.items():
            text = text.replace(given, free)
        return text

    for block, shown in steps():
        if block.language == "json":
            (project / "orders.jsonl").write_text(block.text)
        elif block.language == "python":
            name = block.text.splitlines()[0].removeprefix("# ")
            (project / name).write_text(here(block.text))
        else:
            for line in block.text.splitlines():
                command = here(line)
                if command.startswith("headrace kafka start"):
                    command += f" --port {ports['9092']}"
                elif command.startswith(("headrace kafka send", "headrace kafka read")):
                    command += f" --servers 127.0.0.1:{ports['9092']}"
                elif command.startswith("make "):
                    command = f"{command} --directory {ROOT}"
                follow(shell, command, here(shown))
                ran.append(line)
                if "totals:2" in command:
                    again = shell.type(command.replace("totals:2", "totals:9"))
                    assert again[0] == 0 and "totals is there already, with 2 part" in again[1]
    assert len(ran) == 19, ran
    rejected = [path.read_text() for path in (project / "out" / "bad").glob("epoch=*/*")]
    assert len(rejected) == 2 and all("many" in text for text in rejected)


def follow(shell: Shell, command: str, shown: str) -> None:
    """Runs a command, as often as a person would who waits for Spark to start."""
    until = time.monotonic() + PATIENCE_S
    while True:
        status, said = shell.type(command)
        if "kafka read" in command and shown:
            right = by_key(said) == by_key(shown)
        elif "curl" in command:
            right = ("headrace_user_count_total{" in said) if "metrics" in command else bool(said)
        elif "state get" in command:
            right = '"cents": 1280' in said or '"cents":1280' in said
        else:
            right = shown.strip() in said
            assert status == 0 and right, f"{command}: {said}"
        if status == 0 and right:
            return
        assert time.monotonic() < until, f"{command}: {said}, not {shown}"
        time.sleep(1.0)
