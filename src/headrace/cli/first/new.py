"""`headrace new NAME`: a small project with a pipeline, its input, a test and a README."""

from __future__ import annotations

import keyword
import os
import re
import shutil
import sys
import tempfile
from importlib.metadata import packages_distributions
from pathlib import Path

import click

from headrace.errors import HeadraceError

PIPELINE = '''\
"""Counts the hits of each page, and tells when a page becomes popular."""

from headrace import Computation, Pipeline, sinks, sources, state, to

POPULAR = 3


class Pages(Computation):
    hits: int = state(0)

    def process_record(self, record, ctx):
        self.hits += 1
        ctx.count("hits")
        if self.hits == POPULAR:
            ctx.produce({"page": ctx.key, "hits": self.hits, "by": record.value["user"]})


p = Pipeline("NAME")
p.read("hits", sources.jsonl("input/*.jsonl", timestamp="at", lateness="1m"), errors=to("bad"))
p.compute(Pages, inputs={"hits": "page"}, outputs="popular", errors=to("bad"))
p.stream("popular").write(sinks.jsonl("out/popular"))
p.stream("bad").write(sinks.jsonl("out/bad"))

if __name__ == "__main__":
    print(p.run(checkpoint="out/state"))
'''

TEST = '''\
"""The pipeline in a test: no Spark, milliseconds, the same engine."""

from MODULE import p

from headrace.testing import CRASH, Harness


def hit(page, minute, user="ada"):
    return {"page": page, "user": user, "at": f"2026-01-01T10:{minute:02d}:00Z"}


def test_a_page_becomes_popular_once_though_the_driver_dies():
    with Harness(p) as h:
        h.send("hits", hit("/", 0), hit("/", 1), CRASH)
        h.send("hits", hit("/", 2, "bob"), hit("/", 3), hit("/about", 3))
        assert h.read("popular") == [{"page": "/", "hits": 3, "by": "bob"}]
        assert h.state("Pages", "/").hits == 4


def test_what_is_no_hit_goes_aside():
    with Harness(p) as h:
        h.send("hits", {"user": "ada", "at": "2026-01-01T10:00:00Z"})
        assert len(h.read("bad")) == 1
        assert h.counts["dead"] == 1
'''

INPUT = """\
{"page": "/", "user": "ada", "at": "2026-01-01T10:00:00Z"}
{"page": "/about", "user": "bob", "at": "2026-01-01T10:00:20Z"}
{"page": "/", "user": "bob", "at": "2026-01-01T10:01:00Z"}
{"user": "eve", "at": "2026-01-01T10:01:30Z"}
{"page": "/", "user": "eve", "at": "2026-01-01T10:02:00Z"}
{"page": "/about", "user": "ada", "at": "2026-01-01T10:03:00Z"}
"""

README = """\
# NAME

A Headrace pipeline: it counts the hits of each page.

```sh
headrace check MODULE:p                                    # a few real records, no Spark, no trace
python -m pytest                                           # the tests
headrace run MODULE:p --checkpoint out/state --until end   # on Spark; start it again to go on
headrace state scan out/state Pages                        # what it knows
```

| file | what it is |
| --- | --- |
| `MODULE.py` | the pipeline `p`: where records come from, what is computed per key, where rows go |
| `test_MODULE.py` | tests that crash the driver on purpose |
| `input/hits.jsonl` | some input; one line is broken on purpose and goes to `out/bad` |

Everything that must survive a crash is in `out/state`. Delete it to begin again.
"""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


@click.command(
    epilog="""\b
Examples:
  headrace new page-hits
  cd page-hits && headrace check page_hits:p"""
)
@click.argument("name", metavar="NAME")
def new(name: str) -> None:
    """Make a small project: a pipeline, its input, a test and a README, in the directory NAME.

    NAME may be a path; its last part is the name of the pipeline. A directory that exists is
    refused.
    """
    place = Path(name)
    make_project(place)
    module = module_of(place.name)
    click.echo(f"{place}: a pipeline ({module}.py), a test, some input and a README. Next:")
    click.echo(f"  cd {place}")
    click.echo(f"  headrace check {module}:p")
    click.echo("  python -m pytest")
    click.echo(f"  headrace run {module}:p --checkpoint out/state --until end")


def make_project(place: Path) -> None:
    """Writes the files of a project; the directory appears with all of them, or not at all."""
    if place.exists() or place.is_symlink():
        raise HeadraceError(f"{place} exists; name a directory that does not")
    module = module_of(place.name)
    if not place.parent.is_dir():
        raise HeadraceError(f"there is no directory {place.parent}: make it first")
    files = {
        f"{module}.py": PIPELINE,
        f"test_{module}.py": TEST,
        "README.md": README,
        "input/hits.jsonl": INPUT,
        ".gitignore": "out/\n__pycache__/\n",
    }
    made = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
    try:
        for name, text in files.items():
            path = made / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(
                text.replace("MODULE", module).replace("NAME", place.name), encoding="utf-8"
            )
        os.chmod(made, 0o777 & ~_umask())
        made.rename(place)
    except OSError as error:
        raise HeadraceError(f"{place} could not be made: {error}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)  # it is gone if the rename succeeded


def module_of(name: str) -> str:
    """The name of the module of a project; refuses names that cannot be imported."""
    module = name.lower().replace("-", "_")
    if not _NAME.fullmatch(name) or keyword.iskeyword(module):
        raise HeadraceError(
            f"{name!r} cannot name a project: use letters, digits, - and _, a letter first"
        )
    installed = {*sys.stdlib_module_names, *packages_distributions()}
    if module in installed or module in ("headrace", "pyspark", "test"):
        raise HeadraceError(
            f"{name!r} is the name of a module that is installed here, and would hide it; use "
            "another"
        )
    return module


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
