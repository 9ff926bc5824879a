"""How a consumer extracts the key from a value.

A key is given as a column's name, a tuple of names, a function of the value, `()` for one key for
all records, or `None` for no key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import InvalidPipeline, InvalidRecord
from headrace.model.functions import checked_function

KeyGiven = str | tuple[str, ...] | Callable[[Any], Any] | None


class KeySpec:
    """A checked description of how to extract a key from a value."""

    __slots__ = ("columns", "function", "keyless", "single")

    def __init__(self, given: KeyGiven, *, where: str) -> None:
        self.columns: tuple[str, ...] | None = None
        self.function: Callable[[Any], Any] | None = None
        self.keyless = given is None
        self.single = isinstance(given, str)
        if given is None:
            return
        if isinstance(given, str):
            self.columns = (given,)
        elif isinstance(given, tuple):
            if not all(isinstance(name, str) for name in given):
                raise InvalidPipeline(f"{where}: a tuple key names columns: {given!r}")
            self.columns = given
        elif callable(given):
            self.function = checked_function(given, where, "value")
        else:
            raise InvalidPipeline(
                f"{where}: a key is a column's name, a tuple of names, a function, () or None, "
                f"not {given!r}"
            )

    @property
    def everything(self) -> bool:
        """Whether all records share one key."""
        return self.columns == ()

    def extract(self, value: Any) -> Any:
        """The key of a value; raises InvalidRecord if it has none."""
        if self.function is not None:
            return self.function(value)
        columns = self.columns or ()
        if self.single:
            cell = _cell(value, columns[0])
            return _as_tuple(cell) if type(cell) is dict else cell
        return tuple(_cell(value, name) for name in columns)

    def describe(self) -> str:
        """The key as text, for messages."""
        if self.keyless:
            return "no key"
        if self.function is not None:
            return getattr(self.function, "__qualname__", "a function")
        columns = self.columns or ()
        return repr(columns[0]) if self.single else repr(columns)


@dataclass(frozen=True)
class KeyParts:
    """A key of several parts, each a function of the value."""

    functions: tuple[Callable[[Any], Any], ...]

    def __call__(self, value: Any) -> tuple[Any, ...]:
        return tuple(function(value) for function in self.functions)


def _as_tuple(cell: Any) -> Any:
    """Turns a key of several parts, as read from a column of rows, back into a tuple."""
    if type(cell) is dict and list(cell) == [f"part_{i}" for i in range(len(cell))]:
        return tuple(_as_tuple(part) for part in cell.values())
    return cell


def _cell(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        try:
            return value[name]
        except KeyError:
            have = ", ".join(map(str, value)) or "none"
            raise InvalidRecord(
                f"there is no column {name!r} to key by; there are: {have}"
            ) from None
    if hasattr(value, name):
        return getattr(value, name)
    raise InvalidRecord(
        f"cannot take column {name!r} from a {type(value).__name__}: key by a function instead"
    )
