"""Visitors that read the state store from outside, as of one moment (O8)."""

from __future__ import annotations

import numpy as np

from headrace.errors import StoreError
from headrace.model.values.codec import decode_value
from headrace.model.values.keys import decode_key, hash_key
from headrace.plan.rings.ring import SlotRecords
from headrace.state.backend import OpenState, StateView
from headrace.state.backends.applied_view import AppliedView
from headrace.state.backends.moment import at_one_moment
from headrace.state.view import SlotView
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.drivers.readers import Visitor
from headrace.testing.simulator.drivers.scene import Scene
from headrace.testing.simulator.machine.fiber import Killed

_TRIES_MAX = 200


class StateReader(Visitor):
    """Reads all baskets, key by key; what it has seen is judged when the schedule is over."""

    kind = "reader of the state store"

    def __init__(self, scene: Scene, number: int, opens: OpenState, checkpoint: str) -> None:
        super().__init__(scene, number)
        self._backend = opens(checkpoint)
        self._epoch, self._floor = 0, 0

    def _run(self) -> None:
        moments = getattr(self._scene.workload, "moments", None)
        if moments is not None:
            seen = at_one_moment(self._view, self._read, "the state", _TRIES_MAX)
            moments.append((self._epoch, seen))

    def _view(self) -> StateView:
        marks = self._backend.marks()
        view = AppliedView(self._backend, "Basket")
        empty = np.empty(0, np.uint64)
        records = SlotRecords(empty, empty, np.empty(0, np.int64))
        view.turn(SlotView([], records, [], {}), marks.applied, marks.run)
        self._epoch, self._floor = marks.applied, marks.floor
        return view

    def _read(self, view: StateView) -> dict[str, tuple[int | None, dict[str, int]]]:
        found: dict[str, tuple[int | None, dict[str, int]]] = {}
        for _, key in sorted(view.scan()):
            stored = view.fetch([key], np.array([hash_key(key)], np.uint64), maps=True)[0]
            cell = stored.fields.get("owner")
            entries = dict(stored.map_of(key, "items").scan(None, None))
            items = {decode_key(entry): decode_value(data[0]) for entry, data in entries.items()}
            owner = None if cell is None else decode_value(cell[0])
            if owner is not None or items:
                found[decode_key(key)] = (owner, items)
        return found

    def check_end(self) -> None:
        error, server = self.fiber.error, self._scene.state_server
        put_back = server is not None and server.older and self._floor <= self._epoch
        if isinstance(error, StoreError) and put_back:
            return  # the copy has cells of an epoch that it does not count, until a driver applies
        if error is not None and not isinstance(error, Killed):
            raise Violation(f"{self.kind} {self.number} stopped: {error}") from error
