"""Where a record comes from, in a form that does not depend on how the input was cut (D8)."""

from __future__ import annotations

from headrace.model.values.keys import encode_part


def source_origin(split: str, position: int) -> bytes:
    """The origin of a source's record: (split, position)."""
    return encode_part(split) + position.to_bytes(8, "big")


def keyed_origin(computation: str, key: bytes) -> bytes:
    """The origin of a keyed production: (computation, key)."""
    return encode_part(computation) + key


def keyless_origin(cause: bytes, index: int, ordinal: int) -> bytes:
    """The origin of a keyless production: its cause's, the input's index, its ordinal."""
    return cause + index.to_bytes(2, "big") + ordinal.to_bytes(4, "big")
