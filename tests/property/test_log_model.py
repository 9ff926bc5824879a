"""The epoch log under every interleaving of drivers and every fault of a store (PROTOCOL A1-A3).

Drivers run as coroutines: each store operation is a point where another may go
first, where a put may land and not say so, fail, or land later.
"""

from __future__ import annotations

import random
import threading

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.systems import Hurried

from headrace.errors import Fenced, StoreError
from headrace.log.entry import COMMIT, GENERATION
from headrace.log.epochlog import EpochLog
from headrace.store.memory import MemoryStore


class Turns:
    """Lets exactly one thread run at a time, chosen by dice: schedules can be repeated."""

    def __init__(self, dice: random.Random, count: int) -> None:
        self.dice = dice
        self.waiting = set(range(count))
        self.turn = dice.randrange(count)
        self.condition = threading.Condition()

    def pause(self, me: int) -> None:
        with self.condition:
            self.turn = self.dice.choice(sorted(self.waiting))
            self.condition.notify_all()
            self.condition.wait_for(lambda: self.turn == me)

    def begin(self, me: int) -> None:
        with self.condition:
            self.condition.wait_for(lambda: self.turn == me)

    def done(self, me: int) -> None:
        with self.condition:
            self.waiting.discard(me)
            if self.waiting:
                self.turn = self.dice.choice(sorted(self.waiting))
            self.condition.notify_all()


class Treacherous(MemoryStore):
    """One driver's way to shared files: others come in between, puts lie."""

    def __init__(self, files: dict[str, bytes], turns: Turns, me: int, late: list) -> None:
        super().__init__(Hurried())
        self.files, self.turns, self.me, self.late = files, turns, me, late

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self.turns.pause(self.me)
        dice = self.turns.dice
        if self.late and dice.random() < 0.3:
            super().put_if_absent(*self.late.pop())
        chance = dice.random()
        if chance < 0.1:
            raise StoreError("refused")
        if chance < 0.2:
            self.late.append((name, data))  # it lands at some later time, or never
            raise StoreError("timed out")
        landed = super().put_if_absent(name, data)
        if chance < 0.3:
            raise StoreError("the answer was lost")
        return landed

    def read(self, name: str) -> bytes:
        self.turns.pause(self.me)
        return super().read(name)


def live(log: EpochLog, turns: Turns, me: int, acknowledged: list[tuple[int, int, int]]) -> None:
    turns.begin(me)
    try:
        for _ in log.take_over():
            pass
        for n in range(4):
            acknowledged.append((log.append(COMMIT, {"driver": me, "n": n}), me, n))
    except (Fenced, StoreError):
        pass
    finally:
        turns.done(me)


@given(st.integers(0, 2**32), st.integers(2, 4))
def test_every_acknowledged_entry_is_in_the_log_once_and_no_fenced_driver_writes(
    seed: int, count: int
) -> None:
    dice = random.Random(seed)
    turns = Turns(dice, count)
    files: dict[str, bytes] = {}
    late: list[tuple[str, bytes]] = []
    acknowledged: list[tuple[int, int, int]] = []
    threads = []
    for me in range(count):
        log = EpochLog(Treacherous(files, turns, me, late))
        thread = threading.Thread(target=live, args=(log, turns, me, acknowledged))
        threads.append(thread)
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), f"seed {seed}: a schedule got stuck"
    plain = MemoryStore()
    plain.files = files
    for name, data in late:
        plain.put_if_absent(name, data)
    entries = list(EpochLog(plain).follow())
    generations = [entry.generation for _, entry in entries]
    assert generations == sorted(generations), f"seed {seed}: an older driver wrote after a newer"
    heads = [entry.generation for _, entry in entries if entry.kind == GENERATION]
    assert len(heads) == len(set(heads)), f"seed {seed}: two drivers have one generation"
    written: dict[tuple[int, int], list[int]] = {}
    for position, entry in entries:
        if entry.kind == COMMIT:
            body = msgspec.json.decode(entry.body)
            written.setdefault((body["driver"], body["n"]), []).append(position)
    assert all(len(positions) == 1 for positions in written.values()), f"seed {seed}: twice"
    for position, me, n in acknowledged:
        assert written.get((me, n)) == [position], f"seed {seed}: acknowledged, but not there"
