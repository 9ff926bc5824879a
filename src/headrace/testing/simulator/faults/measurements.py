"""What a simulated driver hears of the load of slots: figures that the dice invent.

Simulated time stands still while a task runs, so nothing can be measured. Where a schedule has the
fault *load moves*, each slot has an invented figure, and now and then another slot gets hot. Notes
are lost, doubled and late: no promise may depend on them (K2).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from headrace.plan.elastic.load import SlotNote
from headrace.testing.simulator.faults import kinds
from headrace.testing.simulator.faults.chance import Chance

HOT_US = 5_000_000


class Measurements:
    """The invented load of a schedule."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._random = Random(f"{chance.seed} measured")
        self._hot = ""
        """The label of the slot that is hot now."""
        self._late: list[SlotNote] = []
        self.noted: dict[str, set[int]] = {}
        """Label of a slot -> the epochs of which a note has arrived."""

    def of(self, measured: Sequence[SlotNote]) -> list[SlotNote]:
        """The notes that arrive, of those that slots have made."""
        chance, dice = self._chance, self._random
        if kinds.LOAD_MOVES not in chance.kinds:
            return []
        found, self._late = self._late, []
        if measured and (not self._hot or chance.strikes(kinds.LOAD_MOVES, "epoch")):
            self._hot = measured[int(dice.random() * len(measured))].label
            chance.note(f"slot {self._hot} gets hot")
        for note in measured:
            busy = int(HOT_US * (1 if note.label == self._hot else dice.choice((0.001, 0.01, 0.1))))
            given = msgspec.structs.replace(note, wall_us=busy)
            fate = dice.random()
            if fate < 0.8:
                found.append(given)
            elif fate < 0.87:
                found += [given, msgspec.structs.replace(given, wall_us=busy // 2)]
            elif fate < 0.94:
                self._late.append(given)
        dice.shuffle(found)
        for note in (note for note in found if not note.pieces):
            self.noted.setdefault(note.label, set()).add(note.epoch)
        return found
