"""Which modules must travel by value with a computation: those of its class and its functions."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import is_dataclass
from inspect import isfunction
from pathlib import Path
from typing import Any

from headrace.pipeline.graph.graph import Node


def modules_of(node: Node) -> Iterator[str]:
    """The modules of a computation's class and of the functions that it was given."""
    yield type(node.template).__module__
    todo: list[Any] = [
        *vars(node.template).values(),
        *(given.key.function for given in node.inputs),
    ]
    while todo:
        part = todo.pop()
        if isinstance(part, tuple | list):
            todo.extend(part)
        elif isinstance(part, dict):
            todo.extend(part.values())
        elif is_dataclass(part) and not isinstance(part, type):
            todo.extend(vars(part).values())
        elif isfunction(part) and not _installed(part.__module__):
            yield part.__module__


def _installed(name: str) -> bool:
    """Whether a module belongs to Python or to an installed package, so that workers have it."""
    file = getattr(sys.modules.get(name), "__file__", None)
    places = {sysconfig.get_path(which) for which in ("stdlib", "purelib", "platlib")}
    return file is None or any(Path(file).is_relative_to(place) for place in places)
