"""Public names of the package, which are imported when they are first used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import headrace


def imports_for_type_checkers() -> dict[str, str]:
    """Name -> module, as type checkers and editors read them."""
    tree = ast.parse(Path(headrace.__file__).read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    found = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for name in node.names:
            found[name.name] = f"{node.module}.{name.name}"
    return found


def test_names_come_from_the_modules_that_type_checkers_see() -> None:
    seen = imports_for_type_checkers()
    assert {*seen, "state"} == set(headrace.__all__)
    for name, path in seen.items():
        module, _, attribute = path.rpartition(".")
        home = headrace._HOMES[name]
        assert home in (module, path), name
        assert getattr(headrace, name) is not None
        assert attribute == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Pipelin'"):
        headrace.Pipelin
    assert {*headrace.__all__} <= {*dir(headrace)}


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_function_state_stays_though_its_namesake_is_imported() -> None:
    program = "import headrace.state.cache; from headrace import state; print(state(0) is not None)"
    assert run(program) == "True"


def test_a_worker_imports_neither_pandas_nor_the_driver() -> None:
    program = """
import sys
import headrace.engine.spark.tasks
heavy = ("pandas", "headrace.engine.driver.driver", "headrace.pipeline.fluent.stream")
print([name for name in heavy if name in sys.modules])
"""
    assert run(program) == "[]"
