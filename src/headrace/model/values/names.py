"""Names that users give: one or several, and suggestions for misspelled ones."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

from headrace.errors import InvalidPipeline

P = ParamSpec("P")
R = TypeVar("R")


def known_options(
    where: str, more: Iterable[str] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: the error for an unknown option of the function lists the known options.

    `more`: the options that its `**` parameter accepts.
    """

    def checked(function: Callable[P, R]) -> Callable[P, R]:
        given = inspect.signature(function).parameters.values()
        own = [p.name for p in given if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        options = [*(name for name in own if name != "self"), *more]

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name not in options:
                    raise no_option(where, name, options)
            return function(*args, **kwargs)

        return call

    return checked


def names_of(given: Any, *, what: str) -> tuple[str, ...]:
    """The names as a tuple. A text is one name, never a sequence of letters."""
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidPipeline(f"{what} takes a name or a list of names, not {given!r:.80}")
    return names


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint with a similar name for messages, or an empty text."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def no_option(where: str, name: str, known: Iterable[str]) -> InvalidPipeline:
    """The error for an unknown option."""
    options = list(known)
    return InvalidPipeline(
        f"{where}: there is no option {name!r}{did_you_mean(name, options)}; there are: "
        f"{', '.join(options)}"
    )
