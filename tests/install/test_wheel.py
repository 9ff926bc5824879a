"""The wheel as users get it: installed in an empty environment, it has all that it needs."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import pytest
from tests.install.environments import (
    QUIET,
    built_wheel,
    call,
    empty_environment,
    with_packages_of_this_one,
)
from tests.spark.support import ROOT

thorough = pytest.mark.skipif(
    not os.environ.get("HEADRACE_INSTALL"),
    reason="installs 500 MB of packages: `make test-versions`, or HEADRACE_INSTALL=1",
)
EXTRAS = "kafka,delta,postgres,metrics,ui"

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_wheel(tmp_path_factory.mktemp("wheel"))


def test_the_wheel_has_every_file_of_the_source(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    own = [path for path in (source / "headrace").rglob("*") if path.is_file()]
    missing = [
        str(path.relative_to(source))
        for path in own
        if "__pycache__" not in path.parts and str(path.relative_to(source)) not in names
    ]
    assert missing == []
    assert not [name for name in names if name.startswith("tests")]


def test_the_installed_wheel_makes_a_project_whose_tests_pass(wheel: Path, tmp_path: Path) -> None:
    """Here the dependencies are those of this environment; below, they are installed too."""
    home = empty_environment(tmp_path / "venv")
    call(home / "bin" / "pip", "install", *QUIET, "--no-deps", wheel)
    with_packages_of_this_one(home)
    check_first_minutes(home, tmp_path)


@thorough
@pytest.mark.slow
def test_pip_installs_all_that_a_new_project_needs(wheel: Path, tmp_path: Path) -> None:
    home = empty_environment(tmp_path / "venv")
    bound = (*QUIET, "--constraint", ROOT / "constraints.txt")
    call(home / "bin" / "pip", "install", *bound, "setuptools")
    call(home / "bin" / "pip", "install", *bound, "--no-build-isolation", wheel)
    for extra, module in {"kafka": "confluent_kafka", "metrics": "prometheus_client"}.items():
        said = call(home / "bin" / "python", "-c", WITHOUT[extra])
        assert f"pip install 'headrace[{extra}]'" in said, f"{module}: {said}"
    call(home / "bin" / "pip", "install", *bound, "pytest")
    check_first_minutes(home, tmp_path)
    # On Spark, as its README says.
    run = ("run", "page_hits:p", "--checkpoint", "out/state", "--until", "end")
    said = call(home / "bin" / "headrace", *run, cwd=tmp_path / "page-hits")
    assert "page-hits: all input was read." in said
    call(home / "bin" / "pip", "install", *bound, f"{wheel}[{EXTRAS}]")
    modules = "import confluent_kafka, deltalake, psycopg, prometheus_client"
    call(home / "bin" / "python", "-c", modules)
    call(home / "bin" / "pip", "check")
    shutil.rmtree(home)


WITHOUT = {
    "kafka": """
from headrace import sources
try:
    sources.kafka("t", servers="127.0.0.1:9")
except Exception as error:
    print(error)
""",
    "metrics": """
from headrace.observe.metrics.prometheus import PrometheusListener
try:
    PrometheusListener()
except Exception as error:
    print(error)
""",
}


def check_first_minutes(home: Path, tmp_path: Path) -> None:
    """What a person does first; all of it with what is installed in `home`."""
    where = call(home / "bin" / "python", "-c", "import headrace; print(headrace.__file__)")
    assert where.startswith(str(home)), where
    command = home / "bin" / "headrace"
    assert "Stateful stream processing" in call(command, "--help")
    call(command, "new", "page-hits", cwd=tmp_path)
    project = tmp_path / "page-hits"
    assert "popular: 1 row" in call(command, "check", "page_hits:p", cwd=project)
    tested = call(home / "bin" / "python", "-m", "pytest", "-q", cwd=project)
    assert "2 passed" in tested
