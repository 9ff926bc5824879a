"""`Map`: state that is stored, changed and expired entry by entry.

A map remembers which of its entries user code has accessed. Only those are checked for changes, so
the cost of a hook depends on the entries that it accessed, not on the size of the map. Stored
entries are read from its `MapSource`: one entry, or the range of entries that an iteration needs.
An iteration does not remember values that cannot be changed in place.
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
    """Marks a default that was not given."""

    UNSET = 0


_UNSET: Any = _Unset.UNSET

_FEW = 8
"""If new names are this many times fewer than the known names, they are inserted one by one."""


_SEEN_BYTES, _NAME_BYTES = 400, 150
"""About how much memory an accessed entry takes, and one that was only read, or its name."""


class MapSource(Protocol):
    """The stored entries of a `Map`, as (bytes, expires)."""

    def get(self, entry: bytes) -> tuple[bytes, int] | None: ...
    def scan(
        self, low: bytes | None, high: bytes | None
    ) -> Iterator[tuple[bytes, tuple[bytes, int]]]: ...


class Map(Generic[K, V]):
    """State that is stored, changed and expired entry by entry, in key order.

    It is used like a dict. Changes of a value in place are detected. Iteration is in the order of
    the keys: numbers by size, text by code point.
    """

    __slots__ = (
        "_additions",
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
        """Stored entries that an iteration has read, and that user code has not accessed."""
        self._names: list[bytes] = []
        """The sorted names of entries that were accessed or are known to be stored."""
        self._scanned: tuple[bytes, bytes | None] | None = None
        """The range in which the names include every stored entry."""
        self._touched: dict[bytes, MapEntry] = {}
        """Entries that user code has accessed since `take_changes`."""
        self._fresh: dict[bytes, MapEntry] = {}
        """If writes are observed: the entries that the running hook accessed."""
        self._undo: dict[bytes, tuple[Any, ...] | None] | None = None
        """After `remember`: the earlier images of the entries that the running hook touched."""
        self._additions = 0
        """Counts added entries: an iteration does not include those added after its start."""
        self.clock = 0
        """The running hook's time, which decides what has expired. The worker sets it."""

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
            entry = MapEntry(self._codec, found, self.clock, self._name)
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
            self._additions = entry.added = self._additions + 1
        entry.present, entry.value = True, value
        entry.expires = END if self._ttl_us is None else min(self.clock + self._ttl_us, END)
        entry.written = None  # writing the same value again is a write too

    def __delitem__(self, key: K) -> None:
        self.pop(key)

    def __contains__(self, key: object) -> bool:
        return self._look(key).present  # type: ignore[arg-type]

    def get(self, key: K, default: Any = None) -> Any:
        """The value at `key`, or `default`."""
        entry = self._look(key)
        return entry.value if entry.present else default

    def pop(self, key: K, default: Any = _UNSET) -> Any:
        """Removes `key` and returns its value."""
        entry = self._look(key)
        if not entry.present:
            if default is _UNSET:
                raise KeyError(key)
            return default
        value, entry.value, entry.present = entry.value, None, False
        # Remove the name at once, so that an iteration need not skip all removed entries.
        name = encode_part(key)
        at = bisect_left(self._names, name)
        if self._names[at : at + 1] == [name]:
            del self._names[at]
        return value

    def setdefault(self, key: K, default: V) -> V:
        """The value at `key`. If there is none, `default` is set and returned."""
        if key not in self:
            self[key] = default
        return self[key]

    def range(self, low: K | None = None, high: K | None = None) -> Iterator[tuple[K, V]]:
        """Entries with `low <= key < high`, in key order."""
        first = b"" if low is None else encode_part(low)
        end = None if high is None else encode_part(high)
        return ((decode_key(name), value) for name, value in self._walk(first, end))

    def _walk(self, first: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, Any]]:
        """(name, value) of entries from `first` to `end`, but not of entries added meanwhile."""
        seen, cold, codec = self._seen, self._cold, self._codec
        last = self._additions
        for name in self._between(first, end):
            if name not in seen and (found := cold.get(name)) is not None:
                if found[1] <= self.clock:
                    continue
                value = decoded(codec, found[0], self._name)
                if type(value) in UNCHANGING:
                    yield name, value
                    continue
            entry = self._touch(name)
            if entry.present and entry.added <= last:
                yield name, entry.value

    def _walk_names(self) -> Iterator[bytes]:
        """The names of all entries, without decoding their values."""
        seen, cold, last = self._seen, self._cold, self._additions
        for name in self._between(b"", None):
            entry = seen.get(name)
            if entry is not None:
                if entry.present and entry.expires > self.clock and entry.added <= last:
                    yield name
            elif (found := cold.get(name) or self._source.get(name)) and found[1] > self.clock:
                yield name

    def _between(self, first: bytes, end: bytes | None) -> list[bytes]:
        """The names from `first` to `end` of all entries that may exist."""
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
        """Reads the names of all stored entries from `first` to `end`, each of them once.

        Successive ranges, such as those of a sliding window, cost only what each one adds.
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

    # For the worker -------------------------------------------------------

    def seen(self) -> dict[bytes, tuple[bytes | None, bytes | None]]:
        """Entry -> (stored value, current value) of every entry that was accessed."""
        return {
            name: (entry.stored, self._codec.encode(entry.value) if entry.present else None)
            for name, entry in self._seen.items()
        }

    def weight(self) -> int:
        """About how many bytes of memory its entries take that were read or accessed."""
        return _SEEN_BYTES * len(self._seen) + _NAME_BYTES * (len(self._names) + len(self._cold))

    def note(self) -> bool:
        """After a hook: renews the TTL of changed entries; returns whether the hook wrote."""
        wrote = False
        for name, entry in self._fresh.items():
            data = self._encoded(name, entry.value)[0] if entry.present else None
            if data != entry.written:
                wrote, entry.written = True, data
                entry.expires = END if self._ttl_us is None else min(self.clock + self._ttl_us, END)
        self._fresh.clear()
        return wrote

    def check(self) -> None:
        """Raises TypeError if an entry is not of the declared type."""
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
        """Sets the savepoint to which `undo` returns."""
        self._undo = {}

    def undo(self) -> None:
        """Restores the map as it was when `remember` was called."""
        for name, image in (self._undo or {}).items():
            self._fresh.pop(name, None)
            if image is None:
                self._know(name)  # it may be stored, and its name may have been removed
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
        """Ends the use of savepoints: `undo` will not be called any more."""
        self._undo = None

    def take_changes(self) -> Iterator[tuple[bytes, bytes | None, int]]:
        """(entry, new bytes or None, expires) of each change. Afterwards it counts as stored."""
        for name, entry in self._touched.items():
            data: bytes | None = None
            if entry.present:
                data, entry.value = self._encoded(name, entry.value)
            if data is None and not entry.below:
                del self._seen[name]  # there is no stored entry that it would have to hide
            if data == entry.stored and (data is None or entry.expires == entry.until):
                continue
            yield name, data, entry.expires
            entry.stored, entry.until = data, entry.expires
        self._touched.clear()


def check_key(key: Any, declared: Any, name: str) -> None:
    """Raises TypeError if a key of a Map is not of the declared type."""
    if type(key) is declared or declared is Any:
        return
    plain = decode_key(encode_part(key))  # an enum, or a numpy number, counts as its value
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
