"""`module:name`: what is found, and what each mistake is told."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.cli.targets import load_pipeline
from headrace.errors import InvalidPipeline

MODULE = """
from headrace import Pipeline

orders = Pipeline("orders")
number = 7

def build():
    return Pipeline("built")

def broken():
    raise ValueError("no such shop")

def nothing():
    pass

class Shop:
    pipeline = Pipeline("inner")
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of modules, as the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def shop(here: Path) -> None:
    (here / "shop_module.py").write_text(MODULE)


def message(target: str) -> str:
    with pytest.raises(InvalidPipeline) as caught:
        load_pipeline(target)
    return str(caught.value)


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("name", "pipeline"), [("orders", "orders"), ("build", "built"), ("Shop.pipeline", "inner")]
)
def test_a_pipeline_a_function_and_an_attribute_of_either_are_found(
    name: str, pipeline: str
) -> None:
    assert load_pipeline(f"shop_module:{name}").name == pipeline


@pytest.mark.parametrize("target", ["shop", "shop:", ":orders", ""])
def test_without_both_halves_the_form_is_explained(target: str) -> None:
    assert "write module:name" in message(target)


def test_a_path_is_turned_into_the_module_that_was_meant() -> None:
    assert "shop.orders:main" in message("./shop/orders.py:main")


def test_a_missing_module_says_where_it_was_looked_for(here: Path) -> None:
    text = message("no_such_module:p")
    assert "there is no module 'no_such_module'" in text
    assert str(here) in text


def test_a_missing_import_inside_the_module_is_told_apart(here: Path) -> None:
    (here / "needs_more.py").write_text("import no_such_library\n")
    assert "'needs_more' imports 'no_such_library', which is not installed" in message(
        "needs_more:p"
    )


def test_a_missing_part_of_a_package_names_that_part(here: Path) -> None:
    (here / "package_here").mkdir()
    (here / "package_here" / "__init__.py").write_text("")
    assert "there is no module 'package_here.inner'" in message("package_here.inner:p")


def test_a_module_that_fails_names_the_line(here: Path) -> None:
    (here / "fails.py").write_text("\n\n1 / 0\n")
    text = message("fails:p")
    assert "ZeroDivisionError" in text
    assert "fails.py:3" in text


def test_a_syntax_error_names_the_line(here: Path) -> None:
    (here / "misspelt.py").write_text("x = 1\ndef :\n")
    assert "misspelt.py:2" in message("misspelt:p")


@pytest.mark.usefixtures("shop")
def test_a_missing_name_suggests_the_nearest_and_lists_the_pipelines() -> None:
    text = message("shop_module:order")
    assert "Did you mean 'orders'?" in text
    assert "Pipelines there: shop_module:orders." in text


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("name", "found"), [("number", "of type int"), ("nothing", "None"), ("Shop", "of type type")]
)
def test_what_is_no_pipeline_is_named_for_what_it_is(name: str, found: str) -> None:
    assert f"shop_module:{name} is {found}, not a Pipeline" in message(f"shop_module:{name}")


@pytest.mark.usefixtures("shop")
def test_a_function_that_raises_is_quoted() -> None:
    assert "ValueError: no such shop" in message("shop_module:broken")


def test_an_error_inside_of_headrace_names_the_line_that_called_it(here: Path) -> None:
    (here / "wrong_call.py").write_text(
        "from headrace import sources\n\ndef p():\n    return sources.kafka('orders')\n"
    )
    said = message("wrong_call:p")
    assert "'servers'" in said and "wrong_call.py:4)" in said


def test_a_function_that_ends_the_program_is_told_so(here: Path) -> None:
    (here / "parses.py").write_text("import sys\n\ndef p():\n    sys.exit(2)\n")
    said = message("parses:p")
    assert "ended the program: SystemExit: 2" in said and "parses.py:4)" in said


def test_a_script_that_ends_when_it_is_imported_is_told_so(here: Path) -> None:
    (here / "script_module.py").write_text("import sys\nsys.exit(3)\n")
    said = message("script_module:p")
    assert "'script_module' ends the program when it is imported" in said
    assert "script_module.py:2" in said and "__main__" in said
