"""`Map`: state that is stored, changed and expired entry by entry.

A map knows which of its entries user code has had in its hands; only those are
looked at again, so the cost of a hook follows what it touched and not what is
there. What lies below, it asks its `MapSource`: one entry, or the run of entries that a
walk needs. A walk leaves no trace of values that nobody can change in place.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from headrace.model.map_entry import UNCHANGING, MapEntry, decoded
from headrace.model.values.codec import Codec
from headrace.model.values.keys import decode_key, encode_part
from headrace.model.values.time import END

K = TypeVar("K")
V = TypeVar("V")


class _Unset(enum.Enum):
    """A default that nobody gives."""

    UNSET = 0


_UNSET: Any = _Unset.UNSET

_FEW = 8
"""So many times fewer names than are known are put among them one by one."""


class MapSource(Protocol):
    """Where a `Map` finds the entries that it has not seen yet: (bytes, expires)."""

    def get(self, entry: bytes) -> tuple[bytes, int] | None: ...
    def scan(
        self, low: bytes | None, high: bytes | None
    ) -> Iterator[tuple[bytes, tuple[bytes, int]]]: ...


class Map(Generic[K, V]):
    """State that is stored, changed and expired entry by entry, in key order.

    It reads like a dict. Changing a value in place is seen. Iteration is in the
    order of the keys: numbers by size, text by code point.
    """

    __slots__ = (
        "_codec",
        "_cold",
        "_fresh",
        "_key_type",
        "_name",
        "_names",
        "_scanned",
        "_seen",
        "_source",
        "_touched",
        "_ttl_us",
        "_undo",
        "_watched",
        "clock",
    )

    def __init__(
        self,
        codec: Codec,
        source: MapSource,
        ttl_us: int | None = None,
        *,
        watched: bool = False,
        name: str = "a Map",
        key_type: Any = Any,
    ) -> None:
        self._codec = codec
        self._name, self._key_type = name, key_type
        self._source = source
        self._ttl_us = ttl_us
        self._watched = watched or ttl_us is not None
        self._seen: dict[bytes, MapEntry] = {}
        self._cold: dict[bytes, tuple[bytes, int]] = {}
        """Stored entries that a walk has found, and that nobody has had in their hands."""
        self._names: list[bytes] = []
        """The names of entries that are seen or known to be stored, sorted."""
        self._scanned: tuple[bytes, bytes | None] | None = None
        """From where up to where every stored entry is among the names."""
        self._touched: dict[bytes, MapEntry] = {}
        """Entries that user code has had in its hands since `take_changes`."""
        self._fresh: dict[bytes, MapEntry] = {}
        """Where writes are watched: those of the running hook."""
        self._undo: dict[bytes, tuple[Any, ...] | None] | None = None
        """Where there must be a way back: what the running hook has touched, as it was."""
        self.clock = 0
        """The running hook's time, by which entries expire; the worker sets it."""

    def _look(self, key: K) -> MapEntry:
        return self._touch(encode_part(key))

    def _touch(self, encoded: bytes) -> MapEntry:
        entry = self._seen.get(encoded)
        if self._undo is not None and encoded not in self._undo:
            touched = encoded in self._touched
            self._undo[encoded] = None if entry is None else entry.image(self._codec, touched)
        if entry is None:
            known = self._cold.pop(encoded, None)
            found = known or self._source.get(encoded)
            entry = MapEntry(self._codec, found, self.clock)
            self._seen[encoded] = entry
            if entry.present and known is None:
                self._know(encoded)
        elif entry.present and entry.expires <= self.clock:
            entry.present, entry.value, entry.written = False, None, None
        self._touched[encoded] = entry
        if self._watched:
            self._fresh[encoded] = entry
        return entry

    def __getitem__(self, key: K) -> V:
        entry = self._look(key)
        if not entry.present:
            raise KeyError(key)
        return entry.value  # type: ignore[return-value]

    def __setitem__(self, key: K, value: V) -> None:
        entry = self._look(key)
        if not entry.present:
            check_key(key, self._key_type, self._name)
            self._know(encode_part(key))
        entry.present, entry.value = True, value
        entry.expires = END if self._ttl_us is None else min(self.clock + self._ttl_us, END)
        entry.written = None  # also a write of the same value is a write

    def __delitem__(self, key: K) -> None:
        self.pop(key)

    def __contains__(self, key: object) -> bool:
        return self._look(key).present  # type: ignore[arg-type]

    def get(self, key: K, default: Any = None) -> Any:
        """The value at `key`, or `default`."""
        entry = self._look(key)
        return entry.value if entry.present else default

    def pop(self, key: K, default: Any = _UNSET) -> Any:
        """Removes `key` and gives its value."""
        entry = self._look(key)
        if not entry.present:
            if default is _UNSET:
                raise KeyError(key)
            return default
        value, entry.value, entry.present = entry.value, None, False
        # Out of the names at once: whoever walks must not pass all that is gone.
        name = encode_part(key)
        at = bisect_left(self._names, name)
        if self._names[at : at + 1] == [name]:
            del self._names[at]
        return value

    def setdefault(self, key: K, default: V) -> V:
        """The value at `key`, which becomes `default` if there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def range(self, low: K | None = None, high: K | None = None) -> Iterator[tuple[K, V]]:
        """Entries with `low <= key < high`, in key order."""
        first = b"" if low is None else encode_part(low)
        end = None if high is None else encode_part(high)
        return ((decode_key(name), value) for name, value in self._walk(first, end))

    def _walk(self, first: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, Any]]:
        """(name, value) of entries from `first` to `end`; what is new meanwhile is passed over."""
        seen, cold, codec = self._seen, self._cold, self._codec
        for name in self._between(first, end):
            if name not in seen and (found := cold.get(name)) is not None:
                if found[1] <= self.clock:
                    continue
                value = decoded(codec, found[0])
                if type(value) in UNCHANGING:
                    yield name, value
                    continue
            entry = self._touch(name)
            if entry.present:
                yield name, entry.value

    def _walk_names(self) -> Iterator[bytes]:
        """The names of all entries, without a look at their values."""
        seen, cold = self._seen, self._cold
        for name in self._between(b"", None):
            entry = seen.get(name)
            if entry is not None:
                if entry.present and entry.expires > self.clock:
                    yield name
            elif (found := cold.get(name) or self._source.get(name)) and found[1] > self.clock:
                yield name

    def _between(self, first: bytes, end: bytes | None) -> list[bytes]:
        """The names from `first` to `end` of all entries that may be there."""
        self._scan(first, end)
        names = self._names
        start = bisect_left(names, first)
        stop = len(names) if end is None else bisect_left(names, end)
        return names[start:stop]

    def _know(self, name: bytes) -> None:
        names = self._names
        if not names or names[-1] < name:
            names.append(name)
            return
        at = bisect_left(names, name)
        if at == len(names) or names[at] != name:
            names.insert(at, name)

    def _scan(self, first: bytes, end: bytes | None) -> None:
        """Makes all stored entries from `first` to `end` known, each asked for once.

        Ranges that follow each other, as those of a sliding time do, cost what they add.
        """
        known = self._scanned
        if known is None or _before(known[1], first) or _before(end, known[0]):
            missing: list[tuple[bytes, bytes | None]] = [(first, end)]
            self._scanned = (first, end)
        else:
            missing = []
            if first < known[0]:
                missing.append((first, known[0]))
            if known[1] is not None and (end is None or known[1] < end):
                missing.append((known[1], end))
            longest = None if end is None or known[1] is None else max(end, known[1])
            self._scanned = (min(first, known[0]), longest)
        for low, high in missing:
            seen = self._seen
            found = {n: cell for n, cell in self._source.scan(low, high) if n not in seen}
            self._cold |= found
            if len(found) * _FEW < len(self._names):
                for name in found:
                    self._know(name)
            else:
                self._names = sorted({*self._names, *found})

    def items(self) -> Iterator[tuple[K, V]]:
        """All entries, in key order."""
        return self.range()

    def keys(self) -> Iterator[K]:
        """All keys, in order."""
        return (decode_key(name) for name in self._walk_names())

    def values(self) -> Iterator[V]:
        """All values, in the order of their keys."""
        return (value for _, value in self._walk())

    __iter__ = keys

    def __len__(self) -> int:
        return sum(1 for _ in self._walk_names())

    def __bool__(self) -> bool:
        return next(self._walk_names(), None) is not None

    def update(self, entries: Mapping[K, V]) -> None:
        """Sets several entries."""
        for key, value in entries.items():
            self[key] = value

    def clear(self) -> None:
        """Removes all entries."""
        for name in self._between(b"", None):
            entry = self._touch(name)
            entry.value, entry.present = None, False
        self._names = []

    def __eq__(self, other: object) -> bool:
        return dict(self.range()) == (dict(other.range()) if isinstance(other, Map) else other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Map({dict(self.range())!r})"

    # What the worker asks -------------------------------------------------

    def seen(self) -> dict[bytes, tuple[bytes | None, bytes | None]]:
        """Entry -> (as it is stored, as it is now) of every entry that was looked at."""
        return {
            name: (entry.stored, self._codec.encode(entry.value) if entry.present else None)
            for name, entry in self._seen.items()
        }

    def note(self) -> bool:
        """After a hook: whether it wrote; what it changed lives from now on."""
        wrote = False
        for name, entry in self._fresh.items():
            data = self._encoded(name, entry.value)[0] if entry.present else None
            if data != entry.written:
                wrote, entry.written = True, data
                entry.expires = END if self._ttl_us is None else min(self.clock + self._ttl_us, END)
        self._fresh.clear()
        return wrote

    def check(self) -> None:
        """Raises TypeError where an entry is not of the declared type."""
        for name in self._touched if self._undo is None else self._undo:
            entry = self._seen[name]
            if entry.present:
                self._encoded(name, entry.value)

    def _encoded(self, name: bytes, value: Any) -> tuple[bytes, Any]:
        try:
            return self._codec.encode_and_read(value)
        except TypeError as error:
            raise TypeError(f"{self._name}[{decode_key(name)!r:.80}] is {error}") from None

    def remember(self) -> None:
        """From now on there is a way back to here."""
        self._undo = {}

    def undo(self) -> None:
        """Back to where `remember` was called."""
        for name, image in (self._undo or {}).items():
            self._fresh.pop(name, None)
            if image is None:
                self._know(name)  # it may be stored, and was perhaps removed meanwhile
                self._seen.pop(name, None)
                self._touched.pop(name, None)
                continue
            entry = self._seen[name]
            data, entry.expires, entry.written, touched = image
            entry.present = data is not None
            if entry.present:
                self._know(name)
            entry.value = None if data is None else self._codec.decode(data)
            if not touched:
                del self._touched[name]

    def trust(self) -> None:
        """There will be no way back any more."""
        self._undo = None

    def take_changes(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """(entry, new bytes or None, expires) of each change, which then counts as stored."""
        for name, entry in self._touched.items():
            data: bytes | None = None
            if entry.present:
                data, entry.value = self._encoded(name, entry.value)
            if data is None and not entry.below:
                del self._seen[name]  # nothing lies below that it would have to hide
            if data == entry.stored and (data is None or entry.expires == entry.until):
                continue
            yield name, data, entry.expires
            entry.stored, entry.until = data, entry.expires
        self._touched.clear()


def check_key(key: Any, declared: Any, name: str) -> None:
    """Raises TypeError where a key of a Map is not of the declared type."""
    if type(key) is declared or declared is Any:
        return
    plain = decode_key(encode_part(key))  # an enum, or a number of numpy, is what it holds
    try:
        msgspec.convert(plain, declared)
    except msgspec.ValidationError as error:
        shown = getattr(declared, "__name__", None)
        shown = str(declared) if shown in (None, "tuple") else shown
        raise TypeError(
            f"{name}[{key!r:.80}]: its keys are declared as {shown}, but {error}"
        ) from None


def _before(end: bytes | None, first: bytes) -> bool:
    """Whether a range that ends at `end` leaves a gap before `first`."""
    return end is not None and end < first
