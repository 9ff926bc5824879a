"""What every state backend must do, whatever keeps the cells: random histories against a plain map.

A new backend passes this suite with one line in `BACKENDS`. The plain one here is no more than a
dict with stamps: it shows that the suite asks nothing that only segments can do.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.unit.rings import FIRST, WHOLE

import headrace
from headrace.log.content import digest_of
from headrace.model.values.keys import encode_key, encode_part, hash_key
from headrace.model.values.time import END
from headrace.plan.rings.classes import SegmentSlice
from headrace.state.backend import (
    Entries,
    Hashes,
    SegmentBackend,
    StateBackend,
    StateView,
    Stored,
    StoredMap,
)
from headrace.state.compaction import merge_run, parts_of
from headrace.state.segment import ENTRY, FIELD, TIMER, Cell, encode_segment, read_cells
from headrace.state.view import open_view
from headrace.store.memory import MemoryStore

KEYS = [encode_key(f"k{i}") for i in range(8)]
FIELDS, MAPS = ("count", "name"), ("items", "seen")
ENTRIES = [encode_part(i) for i in range(5)]

Place = tuple[bytes, int, str, bytes]
"""(key, kind, field, entry)"""


class PlainBackend(StateBackend):
    """Cells with stamps in a dict, as a key-value store would hold them."""

    keeps_history = False

    def __init__(self) -> None:
        self._cells: dict[str, dict[Place, tuple[int, Cell]]] = {}
        self._applied: dict[str, int] = {}

    def applied(self, computation: str) -> int:
        return self._applied.get(computation, 0)

    def open(self, computation: str, deltas: StateView) -> StateView:
        return PlainView(self._cells.get(computation, {}), deltas)

    def apply(self, computation: str, epoch: int, cells: Iterable[Cell]) -> None:
        mine = self._cells.setdefault(computation, {})
        for cell in cells:
            place = (cell.key, cell.kind, cell.field, cell.entry)
            if cell.kind in (FIELD, ENTRY) and mine.get(place, (0, None))[0] < epoch:
                mine[place] = (epoch, cell)
        self._applied[computation] = max(epoch, self.applied(computation))

    def drop(self, computation: str, epoch: int, keys: Sequence[bytes] | None) -> None:
        mine = self._cells.get(computation, {})
        for place, (stamp, cell) in mine.items():
            if stamp <= epoch and (keys is None or place[0] in keys):
                mine[place] = (epoch, cell._replace(value=b"", tombstone=True))


class PlainStored(Stored):
    """One key's applied cells under those of the deltas."""

    __slots__ = ("_applied", "_over")

    def __init__(self, applied: dict[Place, Cell], over: Stored) -> None:
        super().__init__()
        self._applied, self._over = applied, over
        for place, cell in applied.items():
            if place[1] == FIELD:
                self.fields[place[2]] = None if cell.tombstone else (cell.value, cell.expires)
        self.fields |= over.fields
        live = [
            c.version
            for p, c in applied.items()
            if p[1] == FIELD and p[2] not in over.fields and not c.tombstone
        ]
        self.version = max([over.version, *live])

    def map_of(self, key: bytes, name: str) -> StoredMap:
        return PlainMap(self._applied, self._over, key, name)

    def map_names(self, key: bytes) -> list[str]:
        mine = [place[2] for place in self._applied if place[1] == ENTRY]
        return list(dict.fromkeys([*self._over.map_names(key), *mine]))


class PlainMap:
    """Entries of the deltas hide those that were applied; a deletion in them cannot be seen here,
    so all entries of the key are looked up at once."""

    def __init__(self, applied: dict[Place, Cell], over: Stored, key: bytes, name: str) -> None:
        self._over = over.map_of(key, name)
        self._applied = {p[3]: c for p, c in applied.items() if p[1] == ENTRY and p[2] == name}

    def get(self, entry: bytes) -> tuple[bytes, int] | None:
        found = self._over.get(entry)
        cell = self._applied.get(entry)
        return found or (None if cell is None or cell.tombstone else (cell.value, cell.expires))

    def scan(
        self, low: bytes | None, high: bytes | None
    ) -> Iterator[tuple[bytes, tuple[bytes, int]]]:
        found = {
            entry: (cell.value, cell.expires)
            for entry, cell in self._applied.items()
            if (low is None or entry >= low) and (high is None or entry < high)
            if not cell.tombstone
        }
        yield from (found | dict(self._over.scan(low, high))).items()


class PlainView(StateView):
    """Deltas over applied cells."""

    def __init__(self, cells: dict[Place, tuple[int, Cell]], deltas: StateView) -> None:
        self._cells, self._deltas = {p: cell for p, (_, cell) in cells.items()}, deltas

    def fetch(self, keys: Sequence[bytes], hashes: Hashes, *, maps: bool) -> Sequence[Stored]:
        over = self._deltas.fetch(keys, hashes, maps=maps)
        hidden = {name: self._deltas.entries(name, keys, hashes) for name in MAPS}
        return [
            PlainStored(
                {
                    place: cell
                    for place, cell in self._cells.items()
                    if place[0] == key
                    and not (place[1] == ENTRY and place[3] in hidden[place[2]].get(i, {}))
                },
                over[i],
            )
            for i, key in enumerate(keys)
        ]

    def fields(self, keys: Sequence[bytes], hashes: Hashes) -> Sequence[Stored]:
        return self.fetch(keys, hashes, maps=False)

    def entries(self, name: str, keys: Sequence[bytes], hashes: Hashes) -> Entries:
        found: Entries = {}
        for i, key in enumerate(keys):
            for place, cell in self._cells.items():
                if place[:3] == (key, ENTRY, name):
                    found.setdefault(i, {})[place[3]] = None if cell.tombstone else cell.value
        for i, newer in self._deltas.entries(name, keys, hashes).items():
            found[i] = found.get(i, {}) | newer
        return found

    def scan(self) -> Iterator[tuple[int, bytes]]:
        yield from self._deltas.scan()
        yield from ((hash_key(place[0]), place[0]) for place in self._cells)


BACKENDS: dict[str, Callable[[], StateBackend]] = {
    "segments": SegmentBackend,
    "a plain dict": PlainBackend,
}


class History:
    """Commits of one computation, with a plain map of what is live."""

    def __init__(self, backend: StateBackend, seed: int) -> None:
        self.backend, self.dice = backend, random.Random(seed)
        self.store = MemoryStore()
        self.slices: list[SegmentSlice] = []
        self.epoch = 0
        self.live: dict[Place, tuple[bytes, int]] = {}
        self.unapplied: list[tuple[int, str]] = []
        self.late: list[tuple[int, str]] = []

    def commit(self) -> None:
        """An epoch of random changes, as a segment that a commit names."""
        dice = self.dice
        self.epoch += 1
        cells = []
        for key in dice.sample(KEYS, dice.randint(1, 4)):
            places = [(key, FIELD, dice.choice(FIELDS), b"")]
            places += [(key, ENTRY, dice.choice(MAPS), e) for e in dice.sample(ENTRIES, 2)]
            for place in places:
                gone = dice.random() < 0.35
                value = b"" if gone else b"%d" % dice.randrange(1000)
                expires = dice.choice([END, self.epoch + 100])
                if gone:
                    self.live.pop(place, None)
                else:
                    self.live[place] = (value, expires)
                _, kind, field, entry = place
                where, time = hash_key(key), self.epoch
                cells.append(Cell(where, key, kind, field, entry, value, time, expires, 1, gone))
            if dice.random() < 0.5:  # what stays in segments under every backend
                at = self.epoch * 10
                cells.append(Cell(hash_key(key), key, TIMER, "event", b"", b"", at, at))
        self._write(encode_segment(cells), len(cells), self.epoch)
        self.unapplied.append((self.epoch, self.slices[0].segment))

    def _write(self, data: bytes, rows: int, epoch: int, *, bottom: bool = False) -> None:
        name = f"state/C/{self.epoch:012d}-C%2F0-{digest_of(data)}.arrow"
        self.store.write(name, data)
        self.slices.insert(0, SegmentSlice(name, epoch, rows, len(data), bottom))

    def apply(self) -> None:
        """The oldest epoch that was not applied, and perhaps an older one once more, too late."""
        if self.unapplied:
            epoch, segment = self.unapplied.pop(0)
            self.backend.apply("C", epoch, read_cells(self.store, segment))
            self.late.append((epoch, segment))
        if self.late and self.dice.random() < 0.5:
            epoch, segment = self.dice.choice(self.late)
            self.backend.apply("C", epoch, read_cells(self.store, segment))

    def merge(self) -> None:
        """Compacts all segments that the backend still needs, with their deletions."""
        run = self.needed()
        if len(run) > 1:
            kept = [s for s in self.slices if s not in run]
            parts = parts_of(self.store, run, WHOLE, FIRST)
            (merged,) = merge_run(parts, bottom=False, expired_before=0)
            self.slices = kept
            self._write(merged.data, merged.rows, run[0].last_epoch)

    def needed(self) -> list[SegmentSlice]:
        """Segments whose fields and entries were not taken over, newest first."""
        applied = self.backend.applied("C")
        return sorted(
            (s for s in self.slices if s.last_epoch > applied), key=lambda s: -s.last_epoch
        )

    def open(self) -> StateView:
        return self.backend.open("C", open_view(self.store, self.needed(), WHOLE, FIRST))

    def check(self) -> None:
        """Every way to read gives what the plain map has."""
        view, asked = self.open(), [*KEYS, encode_key("nobody")]
        hashes = np.array([hash_key(key) for key in asked], np.uint64)
        for stored in (view.fetch(asked, hashes, maps=True), view.fields(asked, hashes)):
            for key, found in zip(asked, stored, strict=True):
                fields = {n: cell for n, cell in found.fields.items() if cell is not None}
                assert fields == self.of(key, FIELD), (self.epoch, key)
                assert found.version == (1 if fields else 0)
        for key, found in zip(asked, view.fetch(asked, hashes, maps=True), strict=True):
            for name in MAPS:
                self.check_map(found.map_of(key, name), self.of(key, ENTRY, name))
            assert {n for n in MAPS if self.of(key, ENTRY, n)} <= set(found.map_names(key))
        for name in MAPS:
            entries = view.entries(name, asked, hashes)
            for i, key in enumerate(asked):
                live = {e: v for e, v in entries.get(i, {}).items() if v is not None}
                assert live == {e: v for e, (v, _) in self.of(key, ENTRY, name).items()}
        assert {place[0] for place in self.live} <= {key for _, key in view.scan()}

    def check_map(self, found: StoredMap, expected: dict[str | bytes, tuple[bytes, int]]) -> None:
        assert dict(found.scan(None, None)) == expected
        low, high = sorted(self.dice.sample(ENTRIES, 2))
        between = {e: cell for e, cell in expected.items() if low <= e < high}
        assert dict(found.scan(low, high)) == between
        for entry in ENTRIES:
            assert found.get(entry) == expected.get(entry)

    def of(
        self, key: bytes, kind: int, name: str | None = None
    ) -> dict[str | bytes, tuple[bytes, int]]:
        return {
            (field if kind == FIELD else entry): cell
            for (owner, of_kind, field, entry), cell in self.live.items()
            if owner == key and of_kind == kind and name in (None, field)
        }


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> StateBackend:
    return BACKENDS[request.param]()


@pytest.mark.parametrize("seed", range(12))
def test_a_view_shows_what_the_commits_left(backend: StateBackend, seed: int) -> None:
    history = History(backend, seed)
    for _ in range(25):
        history.commit()
        for step in (history.apply, history.merge):
            if history.dice.random() < 0.5:
                step()
        history.check()


def test_a_new_computation_has_no_state(backend: StateBackend) -> None:
    history = History(backend, 0)
    history.check()
    assert list(history.open().scan()) == [] and backend.applied("C") == 0


def test_what_was_applied_is_applied_again_without_effect(backend: StateBackend) -> None:
    history = History(backend, 1)
    for _ in range(6):
        history.commit()
        history.apply()
    for epoch, segment in history.late:
        backend.apply("C", epoch, read_cells(history.store, segment))
        history.check()
    assert backend.applied("C") in (0, 6)


def test_computations_do_not_see_each_other(backend: StateBackend) -> None:
    history = History(backend, 2)
    for _ in range(4):
        history.commit()
        history.apply()
    other = backend.open("D", open_view(history.store, [], WHOLE, FIRST))
    hashes = np.array([hash_key(key) for key in KEYS], np.uint64)
    assert all(stored.fields == {} for stored in other.fetch(KEYS, hashes, maps=True))
    assert backend.applied("D") == 0


@pytest.mark.parametrize("whole", [False, True])
def test_dropped_keys_stay_dropped(backend: StateBackend, whole: bool) -> None:
    """The log's part, segments without these keys, is done here by hand."""
    history = History(backend, 3)
    for _ in range(8):
        history.commit()
        history.apply()
    gone = KEYS if whole else KEYS[:3]
    history.live = {place: cell for place, cell in history.live.items() if place[0] not in gone}
    kept = [
        Cell(hash_key(key), key, kind, field, entry, value, 1, expires)
        for (key, kind, field, entry), (value, expires) in history.live.items()
    ]
    history.slices = []
    if kept:
        history._write(encode_segment(kept), len(kept), history.epoch, bottom=True)
    backend.drop("C", history.epoch, None if whole else gone)
    history.check()
    for epoch, segment in history.late:  # by one who has not heard of it
        backend.apply("C", epoch, read_cells(history.store, segment))
    history.check()


def test_only_the_state_room_opens_segments() -> None:
    rooms = Path(headrace.__file__).parent
    named = re.compile(r"^from headrace\.state\.segment import .*\bSegment\b", re.MULTILINE)
    found = [
        str(path)
        for path in rooms.rglob("*.py")
        if path.parent != rooms / "state" and named.search(path.read_text())
    ]
    assert found == []
