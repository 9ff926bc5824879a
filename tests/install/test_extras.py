"""Every library that the code imports comes with the plain install or with a documented extra."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

from tests.install.environments import project
from tests.spark.support import ROOT, environment

ASKED_FOR = {"kafka", "delta", "postgres", "metrics", "ui"}
PEERS = {"bytewax", "pyflink"}
"""Programs of benchmarks that run in environments of their own."""
OF_ANOTHER = {"py4j": "pyspark", "boto3": "a profile of AWS that needs it; the error says so"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def named(needs: list[str]) -> set[str]:
    return {normal(re.split(r"[ <>=!~;\[(]", need)[0]) for need in needs}


def imported() -> set[str]:
    """The top-level modules, not of Python and not ours, that the source imports anywhere."""
    found = set()
    for path in (ROOT / "src" / "headrace").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"headrace"}


def test_what_the_code_imports_comes_with_the_install_or_an_extra() -> None:
    told = project()
    offered = named(told["dependencies"])
    for extra, needs in told["optional-dependencies"].items():
        if extra not in ("dev", "docs"):
            offered |= named(needs)
    owners = importlib.metadata.packages_distributions()
    lacking = {
        module
        for module in imported() - PEERS - set(OF_ANOTHER)
        if not {normal(name) for name in owners.get(module, [module])} & offered
    }
    assert lacking == set()


def test_the_extras_that_the_documents_promise_exist() -> None:
    extras = project()["optional-dependencies"]
    assert set(extras) >= ASKED_FOR
    documents = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    for path in documents:
        for names in re.findall(r"headrace\[([a-z0-9,]+)\]", path.read_text(encoding="utf-8")):
            assert set(names.split(",")) <= set(extras), f"{path}: {names}"


HIDDEN = {
    "kafka": ("confluent_kafka", "sources.kafka('t', servers='127.0.0.1:9')"),
    "postgres": ("psycopg", "sinks.postgres('postgresql://127.0.0.1:9/x', 't')"),
    "delta": ("deltalake", "sinks.delta('out/t')"),
    "metrics": ("prometheus_client", "PrometheusListener()"),
    "sql": ("duckdb", "Pipeline('p').read('a', sources.jsonl('*')).sql('select 1')"),
    "objects": ("obstore", "checkpoint_store('s3://bucket/x').read('a')"),
    "hdfs": ("hdfs_native", "checkpoint_store('hdfs://127.0.0.1:9/x').read('a')"),
}


def test_a_missing_extra_is_named_by_the_error(tmp_path: Path) -> None:
    program = f"""
import json, sys
hidden = {HIDDEN!r}
sys.modules.update({{module: None for module, _ in hidden.values()}})  # as if not installed
from headrace import Pipeline, sinks, sources
from headrace.errors import HeadraceError
from headrace.observe.metrics.prometheus import PrometheusListener
from headrace.store.location import checkpoint_store
said = {{}}
for extra, (_, use) in hidden.items():
    try:
        said[extra] = repr(eval(use))
    except HeadraceError as error:
        said[extra] = str(error)
print(json.dumps(said))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment(), capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    for extra, said in json.loads(done.stdout).items():
        assert f"pip install 'headrace[{extra}]'" in said, f"{extra}: {said}"
