"""Functions that users might write, by name: a case that failed can be printed and repeated.

Some raise for some records. Each looks at its own arguments alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


def _plus_one(value: Any, column: str) -> Any:
    return {**value, column: value[column] + 1}


def _wrapped(value: Any, column: str) -> Any:
    return {**value, column: [value.get(column), {"a": value.get(column)}]}


def _without(value: Any, column: str) -> Any:
    return {name: cell for name, cell in value.items() if name != column}


def _unwrapped(value: Any, column: str) -> Any:
    found = value[column]
    return {**value, column: found["a"] if isinstance(found, dict) else found[0]}


def _kind(value: Any, column: str) -> Any:
    return {**value, column: type(value.get(column)).__name__}


def _doubled(value: Any, column: str) -> Any:
    return {**value, column: value.get(column) * 2}


def _often_bare(value: Any, column: str) -> Any:
    """Records of several forms: some are no dicts behind it."""
    return value if value["n"] % 3 else value.get(column)


MAPS: dict[str, Callable[[Any, str], Any]] = {
    "plus_one": _plus_one, "wrapped": _wrapped, "without": _without, "unwrapped": _unwrapped,
    "kind": _kind, "doubled": _doubled,
    "often_bare": _often_bare,
}  # fmt: skip


def _twice(value: Any, column: str) -> Any:
    return [value, {**value, column: 1}]


def _each(value: Any, column: str) -> Any:
    found = value.get(column)
    return [{**value, column: one} for one in (found if isinstance(found, list) else [found, 0.5])]


def _none_or_one(value: Any, column: str) -> Any:
    return None if value.get(column) is None else [value]


FLAT_MAPS: dict[str, Callable[[Any, str], Any]] = {
    "twice": _twice, "each": _each, "none_or_one": _none_or_one,
}  # fmt: skip

CONDITIONS: dict[str, Callable[[Any, str], Any]] = {
    "is_there": lambda value, column: value.get(column) is not None,
    "is_positive": lambda value, column: value[column] > 0,
    "is_one": lambda value, column: value.get(column) == 1,
    "is_true": lambda value, column: value.get(column),
    "is_short": lambda value, column: len(value[column]) < 2,
}

KEYS: dict[str, Callable[[Any, str], Any]] = {
    "of_column": lambda value, column: value[column],
    "of_pair": lambda value, column: (value["k"], value.get(column)),
    "of_nested": lambda value, column: ("x", (value["k"],), value[column]),
}

FUNCTIONS = {**MAPS, **FLAT_MAPS, **CONDITIONS, **KEYS}


@dataclass(frozen=True)
class Do:
    """A function of a value, about one of its columns."""

    name: str
    column: str

    def __call__(self, value: Any) -> Any:
        return FUNCTIONS[self.name](value, self.column)


def whole_numbers(state: int, value: Any) -> int:
    """`add` of a fold: refuses a value by itself, whatever was added before."""
    if type(value) is not int:
        raise TypeError(f"not a whole number: {value!r:.40}")
    return state + value


def plus(state: int, other: int) -> int:
    """`merge` of a fold."""
    return state + other


def kinds_seen(state: list[str], value: Any) -> list[str]:
    """`add` of a fold over whole records or cells: which kinds there were."""
    return sorted({*state, type(value).__name__})


def kinds_merged(state: list[str], other: list[str]) -> list[str]:
    """`merge` of a fold."""
    return sorted({*state, *other})


@dataclass(frozen=True)
class Appended:
    """`reduce`: all values of a column in the order of arrival; not those that are True."""

    column: str
    key: tuple[str, ...]

    def __call__(self, value: Any, state: Any) -> Any:
        found = value.get(self.column)
        if found is True:
            raise ValueError("true is refused")
        key = {name: value.get(name) for name in self.key}
        return {**key, "a": [*state["a"], found], "b": state["b"] + 1}


@dataclass(frozen=True)
class Counted:
    """`reduce`: an answer that does not depend on the order, once all have come."""

    column: str
    key: tuple[str, ...]

    def __call__(self, value: Any, state: Any) -> Any:
        kinds = sorted({*state["a"], type(value.get(self.column)).__name__})
        key = {name: value.get(name) for name in self.key}
        return {**key, "a": kinds, "b": state["b"] + 1}


@dataclass(frozen=True)
class Both:
    """`select=` of a join: both sides, whatever they hold; some pairs are refused."""

    key: tuple[str, ...]
    column: str

    def __call__(self, left: Any, right: Any) -> Any:
        if left and left.get(self.column) is False:
            raise ValueError("false is refused")
        key = {name: (left or right).get(name) for name in self.key}
        return {**key, "a": left, "b": right, "c": (right or {}).get(self.column)}
