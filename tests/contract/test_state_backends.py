"""What every state backend must do, whatever keeps the cells: random histories against a plain map.

`tests/contract/state_stores.py` lists the stores, and says how a new one joins. Segments, where
nothing is applied, pass the first part of the suite too.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tests.contract.state_stores import HISTORIES, STORES, StateStore
from tests.unit.rings import FIRST, WHOLE

import headrace
from headrace.log.content import digest_of
from headrace.model.values.keys import encode_key, encode_part, hash_key
from headrace.model.values.time import END
from headrace.plan.rings.classes import SegmentSlice
from headrace.state.backend import StateBackend, StateView, StoredMap
from headrace.state.backends.applied_view import AppliedView, Overtaken
from headrace.state.backends.moment import at_one_moment
from headrace.state.compaction import merge_run, parts_of
from headrace.state.segment import ENTRY, FIELD, TIMER, Cell, encode_segment, read_cells
from headrace.state.view import open_view
from headrace.store.memory import MemoryStore

KEYS = [encode_key(f"k{i}") for i in range(8)]
FIELDS, MAPS = ("count", "name"), ("items", "seen")
ENTRIES = [encode_part(i) for i in range(5)]

Place = tuple[bytes, int, str, bytes]
"""(key, kind, field, entry)"""


def applied(backend: StateBackend, epoch: int, cells: list[Cell], computation: str = "C") -> None:
    """Applies an epoch, as the leader does."""
    run = backend.marks().run
    backend.write(epoch, [(computation, c) for c in cells if c.kind in (FIELD, ENTRY)])
    assert backend.raise_applied(epoch, run)


class History:
    """Commits of one computation, with a plain map of what is live."""

    def __init__(self, backend: StateBackend | None, seed: int) -> None:
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
        if self.backend is None:
            return
        if self.unapplied:
            epoch, segment = self.unapplied.pop(0)
            applied(self.backend, epoch, read_cells(self.store, segment))
            self.late.append((epoch, segment))
        if self.late and self.dice.random() < 0.5:
            epoch, segment = self.dice.choice(self.late)
            applied(self.backend, epoch, read_cells(self.store, segment))

    def purge(self) -> None:
        """Removes tombstones up to some epoch; the store knows how far it may."""
        if self.backend is not None:
            self.backend.purge(self.dice.randint(0, self.epoch + 1))

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
        mark = self.backend.marks().applied if self.backend is not None else 0
        return sorted((s for s in self.slices if s.last_epoch > mark), key=lambda s: -s.last_epoch)

    def open(self) -> StateView:
        deltas = open_view(self.store, self.needed(), WHOLE, FIRST)
        if self.backend is None:
            return deltas
        view = AppliedView(self.backend, "C")
        view.turn(deltas, self.epoch, self.backend.marks().run)
        return view

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
        assert self.backend is None or not self.backend.lost()

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


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateStore]:
    found = STORES[request.param](tmp_path)
    yield found
    found.close()


@pytest.fixture(params=["segments", *STORES])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StateBackend | None]:
    if request.param == "segments":
        yield None
        return
    found = STORES[request.param](tmp_path)
    yield found.open()
    found.close()


def of_field(key: bytes, value: bytes | None, field: str = "count", version: int = 1) -> Cell:
    gone = value is None
    return Cell(hash_key(key), key, FIELD, field, b"", value or b"", 1, END, version, gone)


def of_entry(key: bytes, entry: bytes, value: bytes | None, name: str = "items") -> Cell:
    gone = value is None
    return Cell(hash_key(key), key, ENTRY, name, entry, value or b"", 1, END, 1, gone)


def fields_of(backend: StateBackend, computation: str = "C") -> dict[bytes, bytes]:
    """The live field `count` of each key."""
    found = backend.read_fields(computation, KEYS, hashes_of(KEYS))
    cells = {key: each.get("count") for key, each in zip(KEYS, found, strict=True)}
    return {key: c.value for key, c in cells.items() if c is not None and c.value is not None}


def hashes_of(keys: list[bytes]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array([hash_key(key) for key in keys], np.uint64)


# What a view shows ----------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "seed"),
    [(name, s) for name in ["segments", *STORES] for s in range(HISTORIES.get(name, 12))],
    indirect=["backend"],
)
def test_a_view_shows_what_the_commits_left(backend: StateBackend | None, seed: int) -> None:
    history = History(backend, seed)
    for _ in range(25):
        history.commit()
        for step in (history.apply, history.merge, history.purge):
            if history.dice.random() < 0.5:
                step()
        history.check()


def test_a_new_computation_has_no_state(backend: StateBackend | None) -> None:
    history = History(backend, 0)
    history.check()
    assert list(history.open().scan()) == []


def test_a_new_store_has_applied_nothing(store: StateStore) -> None:
    marks = store.open().marks()
    assert (marks.applied, marks.floor) == (0, 0) and marks.run


def test_what_was_applied_is_applied_again_without_effect(store: StateStore) -> None:
    backend = store.open()
    history = History(backend, 1)
    for _ in range(6):
        history.commit()
        history.apply()
    for epoch, segment in history.late:
        applied(backend, epoch, read_cells(history.store, segment))
        history.check()
    assert backend.marks().applied == 6


def test_computations_do_not_see_each_other(store: StateStore) -> None:
    backend = store.open()
    applied(backend, 1, [of_field(KEYS[0], b"1"), of_entry(KEYS[0], b"e", b"2")])
    assert backend.read_fields("D", KEYS, hashes_of(KEYS)) == [{}] * len(KEYS)
    assert backend.read_entries("D", "items", KEYS, hashes_of(KEYS)) == [{}] * len(KEYS)
    assert backend.read_entry("D", "items", KEYS[0], b"e") is None
    assert list(backend.scan("D")) == [] and list(backend.map_names("D", KEYS[0])) == []
    assert list(backend.computations()) == ["C"]


def test_checkpoints_do_not_see_each_other(store: StateStore) -> None:
    one, other = store.open("c1"), store.open("c2")
    applied(one, 7, [of_field(KEYS[0], b"1")])
    one.purge(7)
    assert fields_of(other) == {} and other.marks()[:2] == (0, 0)
    applied(other, 1, [of_field(KEYS[1], b"2")])
    assert fields_of(one) == {KEYS[0]: b"1"} and fields_of(other) == {KEYS[1]: b"2"}


def test_cells_keep_their_bytes_whatever_they_are(store: StateStore) -> None:
    keys = [encode_key(k) for k in ("k", "a/b", "\n%\0", "é" * 60, 0, -(2**63), ("a", 1))]
    values = [b"", b"\0" * 5, b"x" * 100_000, bytes(range(256)), b"\n", b"|", b"'"]
    entries = [b"", b"\0", b"\xff\xff", b"a:b"]
    names = ["count", "a.b", "é", "with space", "x" * 100]
    cells = [of_field(k, v, n, 7) for k, v in zip(keys, values, strict=True) for n in names]
    cells += [of_entry(k, e, v, n) for k, v in zip(keys, values, strict=True)
              for e in entries for n in names]  # fmt: skip
    backend = store.open()
    applied(backend, 2**40, cells, "a computation: /é")
    found = backend.read_fields("a computation: /é", keys, hashes_of(keys))
    for mine, value in zip(found, values, strict=True):
        assert {n: (c.stamp, c.value, c.expires, c.version) for n, c in mine.items()} == {
            n: (2**40, value, END, 7) for n in names
        }
    for name in names:
        of_all = backend.read_entries("a computation: /é", name, keys, hashes_of(keys))
        for mine, value in zip(of_all, values, strict=True):
            assert {e: c.value for e, c in mine.items()} == dict.fromkeys(entries, value)
    assert set(backend.scan("a computation: /é")) == {(hash_key(k), k) for k in keys}
    assert set(backend.map_names("a computation: /é", keys[0])) == set(names)
    between = backend.read_range("a computation: /é", "a.b", keys[2], b"\0", b"b")
    assert {entry for entry, _ in between} == {b"\0", b"a:b"}


# Stamps, tombstones, floor (O2, O3) -----------------------------------------


def test_a_late_write_changes_nothing(store: StateStore) -> None:
    sleeper, leader = store.open(generation=1), store.open(generation=2)
    applied(leader, 1, [of_field(KEYS[0], b"old")])
    applied(leader, 2, [of_field(KEYS[0], b"new")])
    sleeper.write(1, [("C", of_field(KEYS[0], b"old"))])
    assert fields_of(leader) == {KEYS[0]: b"new"}


def test_a_deleted_cell_does_not_come_back(store: StateStore) -> None:
    sleeper, leader = store.open(generation=1), store.open(generation=2)
    cells = [of_field(KEYS[0], b"old"), of_entry(KEYS[0], b"e", b"old")]
    applied(leader, 1, cells)
    applied(leader, 2, [of_field(KEYS[0], None), of_entry(KEYS[0], b"e", None)])
    sleeper.write(1, [("C", cell) for cell in cells])
    assert fields_of(leader) == {}
    entry = leader.read_entry("C", "items", KEYS[0], b"e")
    assert entry is None or entry.value is None


def test_a_deleted_cell_does_not_come_back_after_a_purge(store: StateStore) -> None:
    sleeper, leader = store.open(generation=1), store.open(generation=2)
    applied(leader, 1, [of_field(KEYS[0], b"old"), of_field(KEYS[1], b"kept")])
    applied(leader, 2, [of_field(KEYS[0], None)])
    leader.purge(2)
    sleeper.write(1, [("C", of_field(KEYS[0], b"old"))])
    assert fields_of(leader) == {KEYS[1]: b"kept"}
    applied(leader, 3, [of_field(KEYS[0], b"newer")])
    assert fields_of(leader) == {KEYS[0]: b"newer", KEYS[1]: b"kept"}


def test_the_floor_never_passes_the_own_mark(store: StateStore) -> None:
    """Else epochs that are to be applied again, after a restart, would be refused."""
    backend = store.open()
    applied(backend, 1, [of_field(KEYS[0], b"1")])
    backend.purge(5)
    assert backend.marks().floor <= 1
    applied(backend, 2, [of_field(KEYS[1], b"2")])
    assert fields_of(backend) == {KEYS[0]: b"1", KEYS[1]: b"2"}


def test_marks_are_never_lowered(store: StateStore) -> None:
    sleeper, leader = store.open(generation=1), store.open(generation=2)
    for epoch in range(1, 5):
        applied(leader, epoch, [of_field(KEYS[0], b"%d" % epoch)])
    leader.purge(3)
    before = leader.marks()
    assert sleeper.raise_applied(2, before.run)
    sleeper.purge(1)
    assert leader.marks() == before and before.applied == 4


def test_epochs_above_the_mark_are_purged_by_nobody(store: StateStore) -> None:
    backend = store.open()
    applied(backend, 1, [of_field(KEYS[0], b"1")])
    backend.write(2, [("C", of_field(KEYS[0], None))])
    backend.purge(2)
    backend.write(1, [("C", of_field(KEYS[0], b"1"))])
    assert fields_of(backend) == {}


def test_writers_at_once_leave_the_highest_stamp_of_each_cell(store: StateStore) -> None:
    history: dict[int, list[Cell]] = {}
    last: dict[bytes, bytes] = {}
    dice = random.Random(5)
    for epoch in range(1, 9):
        chosen = dice.sample(KEYS, 4)
        history[epoch] = [
            of_field(k, None if dice.random() < 0.3 else b"%d" % epoch) for k in chosen
        ]
        last.update({c.key: c.value if not c.tombstone else b"" for c in history[epoch]})
    one = store.open()  # threads of one driver, or drivers of their own where a server judges them
    backends = [one if store.one_writer else store.open() for _ in range(4)]

    def work(backend: StateBackend) -> None:
        order = list(history)
        random.Random(threading.get_ident()).shuffle(order)
        for epoch in order:
            backend.write(epoch, [("C", cell) for cell in history[epoch]])

    with ThreadPoolExecutor(len(backends)) as pool:
        list(pool.map(work, backends))
    assert fields_of(one) == {k: v for k, v in last.items() if v}


def test_a_store_that_counts_its_cells_counts_all_of_them(store: StateStore) -> None:
    backend = store.open()
    history = History(backend, 8)
    for _ in range(10):
        history.commit()
        history.apply()
        assert backend.lost() == "" or type(backend).__name__ == "HBaseBackend"
        if history.epoch % 4 == 0:
            backend.purge(history.epoch - 1)
            store.committed(backend)


@pytest.mark.parametrize("whole", [False, True])
def test_dropped_keys_stay_dropped(store: StateStore, whole: bool) -> None:
    sleeper, backend = store.open(generation=1), store.open(generation=2)
    history = History(backend, 3)
    for _ in range(8):
        history.commit()
        history.apply()
    gone = KEYS if whole else KEYS[:3]
    history.live = {place: cell for place, cell in history.live.items() if place[0] not in gone}
    backend.drop("C", history.epoch, None if whole else gone)
    history.check()
    for epoch, segment in history.late:  # by one who has not heard of it
        cells = [c for c in read_cells(history.store, segment) if c.kind in (FIELD, ENTRY)]
        sleeper.write(epoch, [("C", cell) for cell in cells])
    history.check()
    applied(backend, 9, [of_field(KEYS[0], b"again")])
    assert fields_of(backend)[KEYS[0]] == b"again"


# A store that forgets, and an older copy (O4 to O6) -------------------------


def test_what_was_synced_outlives_a_crash(store: StateStore) -> None:
    backend = store.open()
    applied(backend, 1, [of_field(KEYS[0], b"1"), of_entry(KEYS[1], b"e", b"2")])
    applied(backend, 2, [of_field(KEYS[2], b"3")])
    backend.sync()
    applied(backend, 3, [of_field(KEYS[0], b"lost, perhaps")])
    store.committed(backend)
    store.crash()
    after = store.open(generation=2)
    mark = after.marks().applied
    assert mark in ((2,) if store.forgets else (2, 3))
    found = fields_of(after)
    assert found[KEYS[2]] == b"3" and after.read_entry("C", "items", KEYS[1], b"e") is not None
    # A cell may outlive a mark that was raised after it. It bears its own epoch, so whoever reads
    # as of the mark sees that it is of a later one.
    cell = after.read_fields("C", KEYS[:1], hashes_of(KEYS[:1]))[0]["count"]
    old, new = (1, b"1"), (3, b"lost, perhaps")
    outlives = mark == 2 and not store.forgets
    assert (cell.stamp, cell.value) in ((old, new) if outlives else (old if mark == 2 else new,))
    applied(after, 3, [of_field(KEYS[0], b"again")])  # from the segment that was kept
    assert after.marks().applied == 3


def test_what_one_who_died_has_not_synced_is_synced_by_the_next(store: StateStore) -> None:
    first = store.open()
    applied(first, 1, [of_field(KEYS[0], b"1")])
    store.committed(first)
    second = store.open(generation=2)
    assert second.marks().applied == 1
    applied(second, 2, [of_field(KEYS[1], b"2")])
    second.sync()
    store.committed(second)
    store.crash()
    third = store.open(generation=3)
    assert third.marks().applied == 2
    assert fields_of(third) == {KEYS[0]: b"1", KEYS[1]: b"2"}


def test_a_crash_changes_the_run(store: StateStore) -> None:
    backend = store.open()
    applied(backend, 1, [of_field(KEYS[0], b"1")])
    backend.sync()
    before = backend.marks().run
    store.committed(backend)
    store.crash()
    after = store.open(generation=2)
    assert after.marks().run != before
    assert not after.raise_applied(2, before)
    assert after.marks().applied == 1


def test_an_older_copy_shows_its_own_mark_and_changes_the_run(store: StateStore) -> None:
    backend = store.open()
    applied(backend, 1, [of_field(KEYS[0], b"1")])
    backend.sync()
    store.committed(backend)
    copy = store.copy()
    applied(backend, 2, [of_field(KEYS[0], b"2"), of_field(KEYS[1], None)])
    backend.sync()
    before = backend.marks().run
    store.put_back(copy)
    after = store.open(generation=2)
    assert after.marks().applied == 1 and after.marks().run != before
    assert fields_of(after) == {KEYS[0]: b"1"}
    applied(after, 2, [of_field(KEYS[0], b"2")])
    assert fields_of(after) == {KEYS[0]: b"2"}


def test_a_task_that_a_crash_interrupts_counts_for_nothing(store: StateStore) -> None:
    backend = store.open()
    applied(backend, 1, [of_field(KEYS[0], b"1")])
    backend.sync()
    view = AppliedView(backend, "C")
    view.turn(open_view(MemoryStore(), [], WHOLE, FIRST), 1, backend.marks().run)
    view.check()
    store.crash()
    view.backend = store.open(generation=2)
    with pytest.raises(Overtaken, match="restarted"):
        view.check()


def test_a_task_that_reads_a_later_epoch_counts_for_nothing(store: StateStore) -> None:
    backend = store.open()
    applied(backend, 1, [of_field(KEYS[0], b"1")])
    view = AppliedView(backend, "C")
    view.turn(open_view(MemoryStore(), [], WHOLE, FIRST), 1, backend.marks().run)
    applied(backend, 2, [of_field(KEYS[0], b"2")])
    view.fetch(KEYS, hashes_of(KEYS), maps=False)
    with pytest.raises(Overtaken, match="epoch 2"):
        view.check()


# Readers outside (O8) -------------------------------------------------------


def test_a_reader_outside_sees_one_epoch(store: StateStore) -> None:
    """Between two of its reads, an epoch moves a value from one key to another, or a purge ends
    what a deletion left."""
    writer, backend = store.open(), store.open()
    at: dict[int, dict[bytes, bytes]] = {0: {}}
    shown: list[int] = []
    dice = random.Random(3)

    def move() -> None:
        epoch = len(at)
        before = at[epoch - 1]
        source, target = dice.sample(KEYS, 2)
        at[epoch] = {k: v for k, v in before.items() if k != source} | {target: b"%d" % epoch}
        applied(writer, epoch, [of_field(source, None), of_field(target, b"%d" % epoch)])
        if dice.random() < 0.5:
            writer.purge(epoch)

    def view_now() -> StateView:
        view, marks = AppliedView(backend, "C"), backend.marks()
        view.turn(open_view(MemoryStore(), [], WHOLE, FIRST), marks.applied, marks.run)
        shown.append(marks.applied)
        return view

    def slowly(view: StateView) -> tuple[int, dict[bytes, bytes]]:
        found = {}
        for key in KEYS:
            if dice.random() < 0.1:
                move()
            cell = view.fetch([key], hashes_of([key]), maps=False)[0].fields.get("count")
            if cell is not None:
                found[key] = cell[0]
        return shown[-1], found

    for _ in range(20):
        move()
        backend.follow(writer.place())  # as the last commit has named it
        epoch, found = at_one_moment(view_now, slowly, "the state", tries_max=100)
        assert found == at[epoch]


def test_only_the_state_room_opens_segments() -> None:
    """And the tools that verify, compare, cut and join segments themselves."""
    rooms = Path(headrace.__file__).parent
    named = re.compile(r"^from headrace\.state\.segment import .*\bSegment\b", re.MULTILINE)
    found = [
        str(path)
        for path in rooms.rglob("*.py")
        if path.parent not in (rooms / "state", rooms / "state/times", rooms / "engine/primitives")
        and named.search(path.read_text())
    ]
    assert found == []
