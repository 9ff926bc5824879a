"""A `Map` over real segments against a dict: cold, warm, expiring, changed while it is walked."""

from __future__ import annotations

import random
import time
from copy import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Map
from headrace.log import paths
from headrace.log.content import digest_of
from headrace.model.values.codec import Codec
from headrace.model.values.keys import encode_key, encode_part, hash_key
from headrace.model.values.time import END
from headrace.state.segment import ENTRY, FIELD, Cell, Segment, encode_segment
from headrace.state.view import MapCells

KEY, OTHER = encode_key("key"), encode_key("other")
FIELDS = ("m", "l", "m\0", "ma", "n")
"""The map's own name, and neighbours of it."""
ACTS = ("set", "pop", "get", "in place", "walk", "walk and change", "names", "range", "clear")
Model = dict[Any, tuple[Any, int]]
"""Key -> (value, expires)."""


class Segments:
    """A key's stored entries, written epoch by epoch."""

    def __init__(self, codec: Codec) -> None:
        self.codec, self.model = codec, {}
        self._segments: list[Segment] = []

    def write(self, changes: dict[Any, tuple[Any, int] | None], *, alone: bool = False) -> None:
        where = hash_key(KEY)
        cells = [Cell(where, KEY, FIELD, "m", b"", b"f", 0)]
        for key, now in changes.items():
            data = b"" if now is None else self.codec.encode(now[0])
            expires = END if now is None else now[1]
            entry = encode_part(key)
            cells.append(Cell(where, KEY, ENTRY, "m", entry, data, 0, expires, 1, now is None))
            if not alone:  # others of the same hash lie right beside
                cells += [Cell(where, KEY, ENTRY, field, entry, b"x", 0) for field in FIELDS[1:]]
                cells.append(Cell(where, OTHER, ENTRY, "m", entry, b"x", 0))
            if now is None:
                self.model.pop(key, None)
            else:
                self.model[key] = now
        data = encode_segment(cells)
        epoch = len(self._segments) + 1
        name = f"x/{paths.content_name(epoch, 'C/0', digest_of(data), '.arrow')}"
        self._segments.insert(0, Segment(name, _buffer(data)))

    def map(self, *, ttl_us: int | None = None) -> Map[Any, Any]:
        ranges = [(segment, 0, len(segment.hashes)) for segment in self._segments]
        return Map(self.codec, MapCells(ranges, KEY, "m"), ttl_us)


def _buffer(data: bytes) -> Any:
    import pyarrow as pa

    return pa.py_buffer(data)


def some_segments(dice: random.Random, codec: Codec, value: Any) -> Segments:
    found = Segments(codec)
    for _ in range(dice.randint(0, 4)):
        keys = dice.sample(range(60), dice.randint(0, 40))
        found.write(
            {
                key: None if dice.random() < 0.3 else (value(dice), dice.choice((END, 50, 100)))
                for key in keys
            }
        )
    return found


def live(model: Model, clock: int) -> dict[Any, Any]:
    return {key: value for key, (value, expires) in sorted(model.items()) if expires > clock}


@given(st.integers(0, 2**32), st.booleans())
def test_a_cold_map_is_a_dict_in_key_order(seed: int, mutable: bool) -> None:
    dice = random.Random(seed)
    codec = Codec(list[int] if mutable else int, where="C.m")

    def value(dice: random.Random) -> Any:
        return [dice.randint(0, 9)] if mutable else dice.randint(0, 9)

    segments = some_segments(dice, codec, value)
    ttl_us = dice.choice((None, 30))
    m, model = segments.map(ttl_us=ttl_us), dict(segments.model)
    clock = 0
    for _ in range(30):
        if dice.random() < 0.2:
            m.note()  # a hook has one time, and the next hook comes later
            clock = m.clock = clock + dice.choice((0, 10, 40))
        key, now = dice.randrange(60), live(model, clock)
        until = END if ttl_us is None else clock + ttl_us
        act = dice.choice(ACTS)
        if act == "set":
            made = value(dice)
            m[key] = made
            model[key] = (copy(made), until)
        elif act == "pop":
            assert m.pop(key, None) == now.get(key)
            model.pop(key, None)
        elif act == "get":
            assert m.get(key) == now.get(key) and (key in m) == (key in now)
        elif act == "in place" and mutable and key in now:
            m[key].append(1)
            # Without a TTL only a write sets the time anew.
            model[key] = ([*now[key], 1], model[key][1] if ttl_us is None else until)
            m.note()
        elif act == "walk":
            assert list(m.items()) == list(now.items())
            assert list(m.values()) == list(now.values())
        elif act == "names":
            assert list(m) == list(now) and len(m) == len(now) and bool(m) == bool(now)
        elif act == "range":
            high = dice.randrange(60)
            assert list(m.range(key, high)) == [(k, v) for k, v in now.items() if key <= k < high]
        elif act == "clear" and dice.random() < 0.3:
            m.clear()
            model.clear()
        elif act == "walk and change":
            passed = []
            for i, (found, _) in enumerate(m.items()):
                passed.append(found)
                if i == 2:
                    for k in (found, found + 1, found + 2):
                        m.pop(k, None)
                        model.pop(k, None)
                    m[found + 100] = made = value(dice)
                    model[found + 100] = (copy(made), until)
            gone = [] if len(passed) < 3 else [passed[2] + 1, passed[2] + 2]
            assert passed == [k for k in now if k not in gone]
        assert list(m.items()) == list(live(model, clock).items()), f"seed {seed} after {act}"
    after = dict(segments.model)
    for entry, data, expires in m.take_changes():
        (k,) = (k for k in range(4000) if encode_part(k) == entry)
        if data is None:
            after.pop(k, None)
        else:
            after[k] = (codec.decode(data), expires)
    assert live(after, clock) == live(model, clock), f"seed {seed}"


@given(st.integers(0, 2**32))
def test_a_way_back_leads_back_from_walks_and_clear_too(seed: int) -> None:
    dice = random.Random(seed)
    segments = some_segments(dice, Codec(list[int], where="C.m"), lambda d: [d.randint(0, 9)])
    m, model = segments.map(), dict(segments.model)
    if dice.random() < 0.5:
        list(m.items())
    m.remember()
    for _ in range(dice.randint(1, 4)):
        act = dice.choice(("clear", "change", "set"))
        if act == "clear":
            m.clear()
        elif act == "set":
            m[dice.randrange(60)] = [99]
        else:
            for value in m.values():
                value.append(7)
    m.undo()
    assert list(m.items()) == list(live(model, 0).items())
    m.trust()
    assert not list(m.take_changes())


def test_reading_leaves_nothing_to_write_and_changes_in_place_do() -> None:
    segments = Segments(Codec(list[int], where="C.m"))
    segments.write({i: ([i], END) for i in range(100)})
    m = segments.map()
    assert len(list(m.values())) == 100 and not list(m.take_changes())
    for key, value in m.items():
        if key % 10 == 0:
            value.append(1)
    assert len(list(m.take_changes())) == 10


@pytest.fixture(scope="module", params=[int, list[int]])
def many(request: pytest.FixtureRequest) -> Segments:
    found = Segments(Codec(request.param, where="C.m"))
    for part in range(6):
        keys = range(part, 100_000, 6)
        value = int if request.param is int else lambda i: [i]
        found.write({i: (value(i), END) for i in keys}, alone=True)
    return found


@pytest.mark.parametrize("act", ["values", "items", "keys", "range", "clear", "len"])
def test_a_hundred_thousand_cold_entries_are_walked_in_runs(act: str, many: Segments) -> None:
    """Half a second is the promise; the bar leaves room for a machine that is busy."""
    m, count = many.map(), 100_000
    began = time.process_time()
    if act == "clear":
        m.clear()
        assert not m
    elif act == "range":
        assert sum(1 for _ in m.range(10, count)) == count - 10
    elif act == "len":
        assert len(m) == count
    else:
        assert sum(1 for _ in getattr(m, act)()) == count
    assert time.process_time() - began < 1.5
