"""One entry of a `Map` that user code has accessed."""

from __future__ import annotations

import datetime
import decimal
import uuid
from typing import Any

import msgspec

from headrace.errors import IncompatibleState
from headrace.model.values.codec import Codec
from headrace.model.values.time import END

_TIMES = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)
UNCHANGING = frozenset(
    (int, float, str, bytes, bool, type(None), decimal.Decimal, uuid.UUID, *_TIMES)
)
"""Types whose values cannot be changed in place."""


class MapEntry:
    """An entry of a map that user code has accessed."""

    __slots__ = ("added", "below", "expires", "present", "stored", "until", "value", "written")

    def __init__(
        self, codec: Codec, found: tuple[bytes, int] | None, clock: int, name: str
    ) -> None:
        """`name`: what the map is called in errors."""
        self.added = 0
        """Which addition to the map it is; 0 for a stored entry."""
        self.below = found is not None
        self.stored = found[0] if found else None
        self.until = self.expires = found[1] if found else END
        """When it expires: the stored time (`until`) and the current time (`expires`)."""
        self.present = found is not None and self.expires > clock
        self.value = decoded(codec, found[0], name) if found and self.present else None
        self.written = self.stored if self.present else None
        """Its bytes at the last write. A TTL counts from the last write."""

    def image(self, codec: Codec, touched: bool) -> tuple[Any, ...]:
        """An image of the entry as it is now, to restore it later."""
        data = codec.encode(self.value) if self.present else None
        return data, self.expires, self.written, touched


def decoded(codec: Codec, data: bytes, name: str) -> Any:
    """The value in an entry's bytes."""
    try:
        return codec.decode(data)
    except msgspec.DecodeError as error:
        raise IncompatibleState(
            f"field {name!r}: a Map's entry is stored with another type than {codec.type}: "
            f"{error}. Raise the class's version= and give it migrate(), or keep the old type"
        ) from None
