"""A plain segment answers as any other: one made of the same cells that is not plain."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.unit.state.support import fetched, field, timer, view_of, written

from headrace.log import blocks, paths
from headrace.log.content import digest_of
from headrace.model.values.keys import encode_key
from headrace.plan.rings.classes import SegmentSlice
from headrace.state.segment import Cell, Segment, encode_segment
from headrace.store.memory import MemoryStore


def opened(cells: list[Cell]) -> Segment:
    data = encode_segment(cells)
    name = f"state/C/{paths.content_name(1, 'C/0', digest_of(data), '.arrow')}"
    return Segment(name, pa.py_buffer(data), in_parts=True)


def look_up(segments: list[list[Cell]], keys: list[Any]) -> list[Any]:
    store = MemoryStore()
    entries: list[SegmentSlice] = [written(store, s, n + 1) for n, s in enumerate(segments)]
    return [(each.fields, each.version) for each in fetched(view_of(store, entries), *keys)]


@pytest.mark.parametrize("value_bytes", [0, 1, 300])
@pytest.mark.parametrize("seed", range(6))
def test_a_plain_segment_answers_as_one_that_is_not_plain(seed: int, value_bytes: int) -> None:
    dice = random.Random(seed)
    plain, other = [], []
    for epoch in range(3):
        keys = dice.sample(range(100, 200), 40)
        gone, expires, version = epoch == dice.randrange(3), dice.randrange(9), dice.randrange(1, 5)
        cells = [
            field(k, "n", None if gone else dice.randbytes(value_bytes), expires=expires)._replace(
                version=version
            )
            for k in keys
        ]
        assert opened(cells).plain is not None
        assert opened([*cells, timer("x", b"", 1)]).plain is None
        plain.append(cells)
        other.append([*cells, timer("x", b"", 1)])
    asked = [*range(90, 210), "a key of another length", 10**12]
    assert look_up(plain, asked) == look_up(other, asked)


def test_two_keys_of_one_hash_are_told_apart() -> None:
    store = MemoryStore()
    mine = field("a", "n", b"1")
    theirs = field("b", "n", b"2")._replace(hash=mine.hash)
    assert opened([mine, theirs]).plain is not None
    view = view_of(store, [written(store, [mine, theirs], 1)])
    hashes = np.array([mine.hash] * 3, np.uint64)
    found = view.fetch([encode_key(k) for k in ("a", "b", "c")], hashes, maps=False)
    assert [each.fields.get("n", (None,))[0] for each in found] == [b"1", b"2", None]


@pytest.mark.parametrize(
    "change",
    [
        {"field": "m"},
        {"expires": 7},
        {"version": 2},
        {"tombstone": True},
        {"value": b"longer"},
        {"key": b"longer than others"},
        {"kind": 1, "entry": b"e"},
    ],
)
def test_a_segment_in_which_one_row_differs_is_not_plain(change: dict[str, Any]) -> None:
    cells = [field(f"key {k}", "n", b"value") for k in range(5)]
    assert opened(cells).plain is not None
    assert opened([*cells[:-1], cells[-1]._replace(**change)]).plain is None


def test_what_lies_in_the_file_is_checked_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocks, "LARGE_BYTES", 0)
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 64)
    cells = sorted(field(f"key {k:02}", "n", b"%0200d" % k) for k in range(50))
    assert all(a.hash < b.hash for a, b in pairwise(cells))
    segment = opened(cells)
    assert segment.plain is not None
    checked: list[int] = []
    real = blocks.BlockCheck._blocks

    def watched(self: Any, chosen: Any) -> None:
        checked.extend(one := list(chosen))
        real(self, one)

    monkeypatch.setattr(blocks.BlockCheck, "_blocks", watched)
    found = segment.plain.read(np.array([7]), np.array([0]), [cells[7].key])
    assert found == [(0, cells[7].value)]
    assert 4 <= len(set(checked)) <= 5, "200 bytes, in blocks of 64"
