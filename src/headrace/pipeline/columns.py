"""Names of columns: looking them up, and saying what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import msgspec

from headrace.errors import InvalidPipeline, InvalidRecord


def check_column(name: str, columns: Iterable[str] | None, *, where: str) -> None:
    """Raises InvalidPipeline where the columns are known and `name` is none of them."""
    if columns is None:
        return
    known = list(columns)
    if name not in known:
        raise InvalidPipeline(
            f"{where}: there is no column {name!r}{did_you_mean(name, known)}; "
            f"there are: {', '.join(known) or 'none'}"
        )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for messages, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def as_columns(value: Any, *, where: str) -> Mapping[str, Any]:
    """A record's value as a mapping of columns."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    raise InvalidRecord(
        f"{where} needs records with columns (a dict, dataclass or Struct), not "
        f"{type(value).__name__}: {value!r:.80}. Make them so with a map step before it"
    )
