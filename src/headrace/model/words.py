"""Names as people give them: one or several, and what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from headrace.errors import InvalidPipeline


def names_of(given: Any, *, what: str) -> tuple[str, ...]:
    """Several names, or one: a text is one name, never its letters."""
    names = (given,) if isinstance(given, str) else tuple(given)
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidPipeline(f"{what} takes a name or a list of names, not {given!r:.80}")
    return names


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for messages, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def no_option(where: str, name: str, known: Iterable[str]) -> InvalidPipeline:
    """The error for an option that there is not."""
    options = list(known)
    return InvalidPipeline(
        f"{where}: there is no option {name!r}{did_you_mean(name, options)}; there are: "
        f"{', '.join(options)}"
    )
