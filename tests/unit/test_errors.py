"""Errors cross from executors to the driver: by pickle, and by name in a report."""

import pickle
import re

import pytest

from headrace import errors
from headrace.errors import HeadraceError, by_name

ALL = [
    found
    for found in vars(errors).values()
    if isinstance(found, type) and issubclass(found, HeadraceError)
]


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_an_error_survives_pickling_with_its_message(cls: type[HeadraceError]) -> None:
    error = cls("computation 'C', key 'k': what happened\nand what to do")
    error.__cause__ = ValueError("why")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        found = pickle.loads(pickle.dumps(error, protocol))
        assert type(found) is cls and str(found) == str(error)


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_an_error_is_found_by_its_name(cls: type[HeadraceError]) -> None:
    assert by_name(cls.__name__) is cls


@pytest.mark.parametrize("name", ["", "by_name", "ValueError", "__doc__", "annotations"])
def test_what_names_no_error_of_ours_is_the_base_of_all(name: str) -> None:
    assert by_name(name) is HeadraceError


def test_the_tree_in_the_docstring_names_every_error_once() -> None:
    lines = re.findall(r"^[ │]+(?:[├└]── )?(\w+)(?: {2,}.*)?$", errors.__doc__ or "", re.MULTILINE)
    tree = [line for line in lines if line[0].isupper()]
    assert sorted(tree) == sorted(cls.__name__ for cls in ALL)
