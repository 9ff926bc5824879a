"""A time index of which only the earliest cells are in memory answers as one that has them all."""

from __future__ import annotations

import random

import pytest
from tests.unit.state.support import field, timer, view_of, written

from headrace.model.values.keys import encode_key, hash_key
from headrace.model.values.time import END
from headrace.state.segment import HOLD, TIMER, WAITING, Cell, Segment
from headrace.state.times.windowed import KeysOfTask, WindowedIndex
from headrace.state.view import SlotView
from headrace.store.memory import MemoryStore

KEYS = [encode_key(f"key {i}") for i in range(12)]
KINDS = {"event": TIMER, "wall": TIMER, "hold": HOLD, "waiting": WAITING}


def cell_of(name: str, cell: tuple[bytes, str, bytes], timed: tuple[int, int] | None) -> Cell:
    key, field_name, entry = cell
    time, hold = (0, END) if timed is None else timed
    return Cell(
        hash_key(key), key, KINDS[name], field_name, entry, b"", time, hold, 1, timed is None
    )


class History:
    """Segments of random changes of one index, and what is live after them."""

    def __init__(self, dice: random.Random, name: str) -> None:
        self.dice, self.name = dice, name
        self.store, self.entries, self.truth = MemoryStore(), [], {}

    def changes(self) -> dict:
        dice, found = self.dice, {}
        for _ in range(dice.randrange(12)):
            name = self.name if self.name in ("event", "wall") else ""
            cell = (dice.choice(KEYS), name, b"%d" % dice.randrange(3))
            if dice.random() < 0.35:
                found[cell] = None
                continue
            at = dice.choice((5, 5, 5, dice.randrange(40)))  # many cells of one time
            hold = at if self.name in ("hold", "waiting") else dice.choice((at, at - 7, END))
            found[cell] = (at, hold)
        return found

    def commit(self, changes: dict) -> None:
        cells = [cell_of(self.name, cell, timed) for cell, timed in changes.items()]
        cells += [field(f"other {self.dice.randrange(9)}", "n", b"1")]
        # Cells of the other indexes must not be taken for those of this one.
        cells += [timer("key 1", b"t", 3)] if self.name != "event" else []
        self.entries.insert(0, written(self.store, cells, len(self.entries) + 1))
        for cell, timed in changes.items():
            self.truth.pop(cell, None)
            if timed is not None:
                self.truth[cell] = timed

    def view(self) -> SlotView:
        return view_of(self.store, self.entries)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_it_answers_as_a_plain_dict_would(seed: int, name: str) -> None:
    dice = random.Random(seed)
    history = History(dice, name)
    history.commit(history.changes())
    index = WindowedIndex(name)
    for _ in range(25):
        index.bind(KeysOfTask(history.view(), dice.randrange(1, 4)))
        truth = dict(history.truth)
        for _ in range(dice.randrange(4)):
            mine = history.changes() if dice.random() < 0.5 else dict.fromkeys(truth)
            left = [t for c, t in truth.items() if c not in mine] + [t for t in mine.values() if t]
            match dice.randrange(3 if name in ("event", "wall", "hold") else 2):
                case 0:
                    assert index.earliest_time(mine) == min((t for t, _ in left), default=None)
                    holds = [hold for _, hold in left if hold != END]
                    assert index.earliest_hold(mine) == min(holds, default=None)
                case 1:
                    limit = dice.randrange(-2, 45)
                    due = sorted((t, c) for c, (t, _) in truth.items() if t <= limit)
                    assert index.due(limit) == due
                case 2:
                    for key in KEYS:
                        assert set(index.of_key(key)) == {cell for cell in truth if cell[0] == key}
                    for cell in [*truth, (KEYS[0], name, b"none")]:
                        assert index.get(cell) == truth.get(cell)
        changes = history.changes()
        history.commit(changes)
        index.apply(changes)
        index.narrow(dice.randrange(1, 9))
        if dice.random() < 0.1:
            index = WindowedIndex(name)  # another process goes on
    index.bind(KeysOfTask(history.view()))
    assert [c for _, c in index.due(END)] == [
        c for _, c in sorted((t, c) for c, (t, _) in history.truth.items())
    ]
    assert len(index) == len(history.truth)


def test_a_million_timers_of_one_time_do_not_come_into_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand stand for them. Neither the next time nor the next hold needs them all."""
    history = History(random.Random(1), "event")
    history.commit({(encode_key(i), "event", b"t"): (500, 500) for i in range(1000)})
    history.commit({(encode_key(1), "event", b"t"): None})
    read = []
    rows = Segment.rows

    def counted(self, indices, *names):
        read.append(len(indices))
        return rows(self, indices, *names)

    monkeypatch.setattr(Segment, "rows", counted)
    index = WindowedIndex("event")
    index.bind(KeysOfTask(history.view(), 10))
    assert index.earliest_time({}) == index.earliest_hold({}) == 500
    assert index.due(499) == []
    assert sum(read) <= 40 and len(index) <= 40
    assert index.get((encode_key(1), "event", b"t")) is None
    assert index.get((encode_key(2), "event", b"t")) == (500, 500)
    assert len(index.due(500)) == 999


def test_timers_that_have_fired_long_ago_are_passed_over_once() -> None:
    history = History(random.Random(1), "event")
    history.commit({(encode_key(i), "event", b"t"): (i, i) for i in range(300)})
    history.commit({(encode_key(i), "event", b"t"): None for i in range(299)})
    index = WindowedIndex("event")
    index.bind(KeysOfTask(history.view(), 4))
    assert index.earliest_time({}) == 299
    assert index.earliest_hold({}) == 299
    assert index.due(298) == []


def test_the_keys_that_come_next_are_found_without_the_others() -> None:
    history = History(random.Random(1), "event")
    history.commit({(encode_key(i), "event", b"t"): (i, END) for i in range(300)})
    index = WindowedIndex("event")
    index.bind(KeysOfTask(history.view(), 4))
    assert index.next_keys(5)[:5] == [encode_key(i) for i in range(5)]
    assert len(index) < 20


@pytest.mark.parametrize(("gone", "step"), [(8, 80), (600, 24_000)])
def test_a_window_grows_by_its_step_however_many_segments_there_are(gone: int, step: int) -> None:
    store, pieces, rows = MemoryStore(), 40, 600
    cells = sorted(timer(i, b"", i) for i in range(pieces * rows))
    parts = [cells[n * rows : (n + 1) * rows] for n in range(pieces)]
    entries = [written(store, part, 1, label=f"C/{n}") for n, part in enumerate(parts)]
    entries.insert(0, written(store, sorted(timer(i, b"", None) for i in range(gone)), 2))
    index = WindowedIndex("event")
    index.bind(KeysOfTask(view_of(store, entries), step=step))
    assert index.earliest_time({}) == gone
    assert 0 < len(index) <= 2 * step
