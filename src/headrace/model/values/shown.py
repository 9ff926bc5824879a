"""Shows values of records in messages. Showing any value must not fail.

`repr` fails on values that are nested too deeply, on integers of thousands of digits, and if a
class raises in it. A text may contain half of a surrogate pair, which cannot be encoded. If showing
a value failed, the error of one record would stop the pipeline.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

_DEPTH_MAX, _ITEMS_MAX = 6, 20
_ADDRESS = re.compile(r" at 0x[0-9a-f]+(?=>)")
"""The memory address of an object, which differs in every process."""


def shown(value: Any, limit: int = 200) -> str:
    """A value as text, cut to `limit` characters; always the same for the same value."""
    if is_nested(value, _DEPTH_MAX):
        return encodable(_outline(value, _DEPTH_MAX)[:limit])
    return encodable(_repr(value)[:limit])


def encodable(text: str) -> str:
    """A text that can be encoded: half of a surrogate pair becomes an escape sequence."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def is_nested(value: Any, depth: int) -> bool:
    """Whether lists, tuples, sets and dicts are nested more than `depth` deep.

    It does not recurse, so its answer does not depend on the stack depth of the caller.
    """
    layer = [value] if type(value) in _CONTAINERS else []
    for _ in range(depth):
        if not layer:
            return False
        layer = [
            inner
            for each in layer
            for inner in (each.values() if type(each) is dict else each)
            if type(inner) in _CONTAINERS
        ]
    return bool(layer)


_CONTAINERS = frozenset((dict, list, tuple, set, frozenset))


def _outline(value: Any, levels: int) -> str:
    """A value as in `repr`, without the parts that are nested too deeply."""
    if type(value) is dict:
        if not levels:
            return "{...}"
        items = [f"{_repr(k)}: {_outline(v, levels - 1)}" for k, v in _some(value.items())]
        return "{" + ", ".join(items) + "}"
    if type(value) in _CONTAINERS:
        if not levels:
            return "[...]"
        return "[" + ", ".join(_outline(each, levels - 1) for each in _some(value)) + "]"
    return _repr(value)


def _some(items: Any) -> Any:
    return islice(items, _ITEMS_MAX)


def _repr(value: Any) -> str:
    try:
        return _ADDRESS.sub("", repr(value))
    except Exception as error:
        return f"<{type(value).__name__}, which cannot be shown: {type(error).__name__}>"
