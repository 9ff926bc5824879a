"""Checks that load and decisions are functions of the log alone (K3, K4).

It folds what commits say of load, with the engine's own fold, from the first entry on. Whatever a
commit has decided must follow from that, and a driver that leads must have the same load in its
ledger. So a leader with a memory of its own, or one that does not fold what it reads, is found.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import msgspec

from headrace.model.values.keys import HASH_SPACE
from headrace.plan.elastic.balancer import decide_rings
from headrace.plan.elastic.decision import Decided
from headrace.plan.elastic.figures import LoadFigures, LoadState
from headrace.plan.elastic.settings import Elasticity
from headrace.plan.elastic.view import RingView
from headrace.plan.rings.wanted import Move
from headrace.testing.simulator.checkers.violation import Violation

_OTHER_FOLDS = ("handover", "lapse", "restore")
"""Entries that put a ledger back to an earlier one."""


class LoadChecker:
    """The load that the log says, entry by entry."""

    def __init__(
        self, settings: Elasticity | None, noted: Mapping[str, Container[int]] | None = None
    ) -> None:
        """`settings` of all drivers; None if nothing is decided.

        `noted`: label of a slot -> the epochs of which a driver has heard a note.
        """
        self.settings = settings
        self._noted = {} if noted is None else noted
        self._pending: set[str] = set()
        """Computations whose wanted ring, which a commit has decided, is not there yet."""
        self._since: dict[str, int] = {}
        """Computation -> the first epoch under its ring."""
        self.state = LoadState()
        self.is_whole = True
        """Whether every entry so far was folded."""
        self._rings: dict[str, RingView] = {}
        self._moves: dict[str, list[list[int]]] = {}
        """Moves of the last plan, by computation."""
        self._wall = 0

    def entry(self, kind: str, body: dict[str, Any]) -> None:
        """Folds one entry, and checks what it has decided."""
        self.is_whole &= kind not in _OTHER_FOLDS
        if self.settings is None or not self.is_whole:
            return
        if kind == "plan":
            self._planned(body)
        if kind == "commit":
            self._committed(body, body["commit"])
        if kind == "generation" or any(o["verb"] == "rescale" for o in body.get("outcomes", ())):
            self._pending.clear()  # a start or a person may want another ring
        if kind in ("commit", "control"):  # decisions on requests move the wall time too (I6)
            self._wall = max([self._wall, *(each["wall"] for each in body.get("outcomes", ()))])
        if kind == "commit" and body.get("next") is not None:
            self._planned(body["next"])

    def _planned(self, plan: dict[str, Any]) -> None:
        self._wall = max(self._wall, plan["wall"])
        self._moves = plan["moves"]
        for name, base in plan.get("ring_bases", {}).items():
            if base.startswith("even/"):  # a plan before it, with other slots, was voided
                slots = int(base.removeprefix("even/"))
                lows = [HASH_SPACE * i // slots for i in range(slots)]
                self._rings[name] = RingView.of(lows, range(slots), plan["rings"][name])

    def _committed(self, body: dict[str, Any], commit: dict[str, Any]) -> None:
        for name in commit.get("steps", {}):
            after = self._rings[name].after([Move(*move) for move in self._moves[name]])
            version = commit["rings"][name]
            self._rings[name] = RingView(after.lows, after.owners, version, after.slots)
            self.state = self.state.without(name)
            self._since[name] = commit["epoch"]
            self._pending.discard(name)
        if body.get("load") is not None:
            figures = msgspec.convert(body["load"], LoadFigures, strict=False)
            self._check_figures(commit["epoch"], figures)
            self.state = self.state.reported(figures, commit["rings"])
        if body.get("decided") is not None:
            decided = msgspec.convert(body["decided"], Decided, strict=False)
            self._check(commit["epoch"], decided)
            self.state = self.state.decided(decided)

    def replaced(self, name: str) -> None:
        """A schedule wants another ring, in place of what was decided: it may be decided again."""
        self._pending.discard(name)

    def _check_figures(self, epoch: int, figures: LoadFigures) -> None:
        """A slot of which nobody has heard has no figure (K5)."""
        for name, busy in figures.busy.items():
            for slot in busy:
                epochs = self._noted.get(f"{name}/{slot}", ())
                if not any(at in epochs for at in range(self._since.get(name, 0), epoch)):
                    raise Violation(
                        f"epoch {epoch} has a figure for slot {name}/{slot}, of which no note came"
                    )

    def _check_pending(self, epoch: int, decided: Decided) -> None:
        """No decision is taken again while its ring is wanted and not there yet (K5)."""
        for name, wanted in decided.wanted.items():
            if name in self._pending:
                raise Violation(f"epoch {epoch} wants another ring of {name} before the last came")
            if wanted.moves or wanted.slots != len(self._rings[name].slots):
                self._pending.add(name)

    def _check(self, epoch: int, decided: Decided) -> None:
        """A decision follows from the log; a ring that is wanted already may suppress one."""
        if self.settings is None:
            return
        self._check_pending(epoch, decided)
        again = decide_rings(
            self.state.of,
            self._rings,
            (),
            self.settings,
            epoch=epoch,
            wall=self._wall,
            early=self.state.early,
        )
        for decision in decided.decisions:
            name = decision.computation
            if decision not in again.decisions or decided.wanted.get(name) != again.wanted.get(
                name
            ):
                raise Violation(f"epoch {epoch} decided what its log does not say: {decision.text}")

    def compare(self, driver: int, load: LoadState) -> None:
        """Checks the ledger of a driver that leads and has read the whole log."""
        if self.settings is not None and self.is_whole and load != self.state:
            raise Violation(f"driver {driver} leads with another load than its log says")
