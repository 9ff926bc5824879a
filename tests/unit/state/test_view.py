"""Reads: the newest version wins, in the classes it is for, key by key."""

import random
from bisect import bisect_right

import numpy as np
import pytest
from tests.unit.rings import records
from tests.unit.state.support import fetched, field, timer, view_of, written

from headrace.model.values.keys import encode_key, hash_key
from headrace.plan.rings.classes import SlotClass
from headrace.plan.rings.ring import Ring
from headrace.state.segment import ENTRY, FIELD, Cell
from headrace.store.memory import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def test_the_newest_version_of_each_field_is_found(store: MemoryStore) -> None:
    entries = [
        written(store, [field("a", "n", b"1"), field("a", "m", b"old")], 1),
        written(store, [field("a", "n", b"2"), field("b", "n", b"3")], 2),
    ]
    a, b, c = fetched(view_of(store, entries), "a", "b", "c")
    assert a.fields == {"n": (b"2", 2**63 - 1), "m": (b"old", 2**63 - 1)}
    assert b.fields == {"n": (b"3", 2**63 - 1)}
    assert c.fields == {} and c.version == 0


def test_a_tombstone_hides_what_is_older(store: MemoryStore) -> None:
    entries = [
        written(store, [field("a", "n", b"1")], 1),
        written(store, [field("a", "n", None)], 2),
    ]
    (a,) = fetched(view_of(store, entries), "a")
    assert a.fields == {"n": None}


def test_the_version_is_that_of_what_is_live_so_that_a_merge_cannot_change_it(
    store: MemoryStore,
) -> None:
    entries = [
        written(store, [field("a", "n", b"1")._replace(version=3)], 1),
        written(store, [field("a", "n", None)._replace(version=3)], 2),
        written(store, [field("a", "m", b"1")._replace(version=2)], 3),
    ]
    assert fetched(view_of(store, entries), "a")[0].version == 2
    assert fetched(view_of(store, entries[:2]), "a")[0].version == 0


def test_last_epochs_decide_and_not_the_order_of_entries(store: MemoryStore) -> None:
    """A merged file is younger than a delta that is newer than what it holds (C1)."""
    merged = written(store, [field("a", "n", b"merged")], 9, last_epoch=4)
    delta = written(store, [field("a", "n", b"delta")], 5)
    for entries in ([merged, delta], [delta, merged]):
        assert fetched(view_of(store, entries), "a")[0].fields["n"][0] == b"delta"


def test_a_segment_counts_only_in_the_classes_that_it_is_for(store: MemoryStore) -> None:
    """J2: own segments count from their class's `since` on, inherited ones in their class."""
    where = hash_key(encode_key("a"))
    ring = Ring([0, where, where + 1], [0, 0, 0], [0, 1, 0])
    classes = (SlotClass(0, 0), SlotClass(1, 5))
    stale = written(store, [field("a", "n", b"of a former ownership"), field("b", "n", b"b")], 4)
    brought = written(store, [field("a", "n", b"1"), field("b", "n", b"not mine")], 3, of=1)
    view = view_of(store, [stale, brought], ring.records(0), classes)
    a, b = fetched(view, "a", "b")
    assert a.fields["n"][0] == b"1" and b.fields["n"][0] == b"b"
    assert sorted(key for _, key in view.scan()) == sorted(map(encode_key, ("a", "b")))
    own = written(store, [field("a", "n", b"2")], 5)
    view = view_of(store, [own, stale, brought], ring.records(0), classes)
    assert fetched(view, "a")[0].fields["n"][0] == b"2"
    view = view_of(store, [own], records((0, where - 1)))
    assert fetched(view, "a")[0].fields == {} and list(view.scan()) == []


def test_a_view_of_many_intervals_finds_what_a_plain_search_finds(store: MemoryStore) -> None:
    dice = random.Random(5)
    keys = [f"k{i}" for i in range(200)]
    hashes = {key: hash_key(encode_key(key)) for key in keys}
    entries = [
        written(store, [field(key, "n", b"%d" % epoch) for key in dice.sample(keys, 90)], epoch)
        for epoch in (1, 2, 3)
    ]
    lows = [0, *sorted(dice.sample(list(hashes.values()), 60))]
    ring = Ring(lows, [dice.randrange(2) for _ in lows], [dice.randrange(3) for _ in lows])
    classes = tuple(SlotClass(i, i) for i in range(3))
    view = view_of(store, entries, ring.records(0), classes)
    found = fetched(view, *keys)
    for key, stored in zip(keys, found, strict=True):
        at = bisect_right(lows, hashes[key]) - 1
        newest = [e for e in reversed(entries) if e.last_epoch >= ring.classes[at]]
        plain = [fetched(view_of(store, [e]), key)[0].fields.get("n") for e in newest]
        plain = [cell for cell in plain if cell] if ring.owners[at] == 0 else []
        assert stored.fields.get("n") == (plain[0] if plain else None), key


def colliding(key: bytes, name: str, value: bytes | None, kind: int = FIELD) -> Cell:
    """All keys have hash 7."""
    entry = b"e" if kind == ENTRY else b""
    return Cell(7, key, kind, name, entry, value or b"", 0, tombstone=value is None)


def test_equal_hashes_are_told_apart_by_the_keys_bytes_and_older_segments_are_searched(
    store: MemoryStore,
) -> None:
    keys = [encode_key(k) for k in ("x", "y", "z", "absent")]
    x, y, z, _ = keys
    entries = [
        written(store, [colliding(z, "n", b"z1"), colliding(y, "n", b"y1")], 1),
        written(store, [colliding(x, "n", b"x2"), colliding(y, "n", None)], 2),
        written(store, [colliding(x, "m", b"x3")], 3),
    ]
    hashes = np.array([7] * 4, np.uint64)
    found = view_of(store, entries).fetch(keys, hashes, maps=True)
    assert found[0].fields == {"m": (b"x3", 2**63 - 1), "n": (b"x2", 2**63 - 1)}
    assert found[1].fields == {"n": None}
    assert found[2].fields == {"n": (b"z1", 2**63 - 1)}
    assert found[3].fields == {}


def test_map_entries_of_colliding_keys_stay_apart(store: MemoryStore) -> None:
    x, y = encode_key("x"), encode_key("y")
    entries = [
        written(store, [colliding(x, "m", b"1", ENTRY), colliding(y, "m", b"2", ENTRY)], 1),
        written(store, [colliding(y, "m", None, ENTRY)], 2),
    ]
    found = view_of(store, entries).fetch([x, y], np.array([7, 7], np.uint64), maps=True)
    maps = [stored.map_of(key, "m") for stored, key in zip(found, (x, y), strict=True)]
    assert maps[0].get(b"e") == (b"1", 2**63 - 1)
    assert maps[1].get(b"e") is None
    assert [list(m.scan(None, None)) for m in maps] == [[(b"e", (b"1", 2**63 - 1))], []]


def entry_of(key: object, name: str, entry: bytes, value: bytes | None) -> Cell:
    encoded = encode_key(key)
    gone = value is None
    return Cell(hash_key(encoded), encoded, ENTRY, name, entry, value or b"", 0, tombstone=gone)


def test_a_map_is_read_entry_by_entry_over_all_segments(store: MemoryStore) -> None:
    entries = [
        written(store, [entry_of("a", "m", b"%d" % i, b"old") for i in range(9)], 1),
        written(
            store,
            [
                entry_of("a", "m", b"3", None),
                entry_of("a", "m", b"5", b"new"),
                entry_of("a", "other", b"1", b"no"),
            ],
            2,
        ),
    ]
    (stored,) = fetched(view_of(store, entries), "a", maps=True)
    cells = stored.map_of(encode_key("a"), "m")
    assert cells.get(b"5") == (b"new", 2**63 - 1)
    assert cells.get(b"3") is None and cells.get(b"x") is None
    assert sorted(e for e, _ in cells.scan(None, None)) == [b"%d" % i for i in range(9) if i != 3]
    assert sorted(e for e, _ in cells.scan(b"2", b"6")) == [b"2", b"4", b"5"]


def test_timed_cells_come_newest_first_with_deletions(store: MemoryStore) -> None:
    entries = [
        written(store, [timer("a", b"t", 10), timer("a", b"u", 20)], 1),
        written(store, [timer("a", b"t", None), field("a", "n", b"1")], 2),
    ]
    found = [(cell[2], timed) for _, cell, timed in view_of(store, entries).timed()]
    assert found == [(b"t", None), (b"t", (10, 10)), (b"u", (20, 20))]
    assert {key for _, key in view_of(store, entries).scan()} == {encode_key("a")}
