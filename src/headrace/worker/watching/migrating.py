"""Calls `migrate` of a class for one key, and says which key it was if that fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.errors import IncompatibleState, UserCodeError
from headrace.model.state import Field
from headrace.model.values.keys import decode_key
from headrace.model.values.shown import encodable
from headrace.worker.runtime import Live
from headrace.worker.watching.tracebacks import shortened


def call_migrate(live: Live, key: bytes, old: dict[str, Any], version: int) -> dict[str, Any]:
    """What `migrate` makes of the fields and maps that `version` of the class has written.

    It may return what was stored under names that the class does not have any more: `{**fields}`.
    Other names are mistakes, by which state would be lost without a word.
    """
    try:
        given = live.shape.cls.migrate(dict(old), version)
    except Exception as error:
        said = f"{_where(live, key, version)}: {type(error).__name__}: {error}"
        lines = [said, shortened(error), _MEND]
        raise UserCodeError(encodable("\n".join(filter(None, lines)))) from error
    if not isinstance(given, Mapping):
        raise UserCodeError(
            f"{_where(live, key, version)}: it returned {given!r:.80}, and not a dict of fields "
            f"and maps. {_MEND}"
        )
    known = {*old, *(field.name for field in live.shape.fields)}
    if strange := [name for name in given if name not in known]:
        raise UserCodeError(
            f"{_where(live, key, version)}: it returned {', '.join(map(repr, strange))}, and "
            f"{live.shape.cls.__qualname__} has no such field. {_MEND}"
        )
    return dict(given)


def misfit(live: Live, key: bytes, field: Field, error: Exception, version: int) -> Exception:
    """The error for what `migrate` has returned for a field, if it is not of the declared type."""
    return IncompatibleState(
        f"{_where(live, key, version)}: field {field.name!r} is declared as {field.type_text}: "
        f"{error}. {_MEND}"
    )


_MEND = "Fix migrate() and start again: this epoch had no effect"


def _where(live: Live, key: bytes, version: int) -> str:
    now = live.shape.options.version
    return (
        f"computation {live.node.name!r}, key {decode_key(key)!r:.100}: migrate() from version "
        f"{version} to {now}"
    )
