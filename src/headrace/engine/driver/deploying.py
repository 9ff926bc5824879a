"""A leader's part in a deploy: it hands over, or it leads on probation until it confirms (L3, L5).

What a probation in restore mode holds back (deliveries, what sources are told) is asked here, and
released only when the confirmation is in the log.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.engine.driver.delivery import Deliverer
from headrace.engine.history.recovery import History
from headrace.failpoints import reach
from headrace.log.entry import CONFIRM, HANDOVER, LAPSE
from headrace.log.epochlog import EpochLog
from headrace.plan.deploy import fold
from headrace.plan.deploy.code import ConfirmBody, LapseBody, new_sinks
from headrace.plan.deploy.handover import HandedOver, Left, LetGo, is_drained, next_move
from headrace.plan.ledger import Ledger
from headrace.system import System


class LeadersDeploy:
    """The code in force, as the driver that leads keeps it."""

    def __init__(
        self,
        log: EpochLog,
        history: History,
        deliverer: Deliverer,
        system: System,
        clock: Callable[[], int],
    ) -> None:
        self._log, self._history, self._deliverer = log, history, deliverer
        self._system, self._clock = system, clock
        self._began_s = system.uptime_s()

    @property
    def _ledger(self) -> Ledger:
        return self._history.ledger

    @property
    def holds(self) -> bool:
        """Whether effects on the outside wait for the confirmation."""
        return self._ledger.code.is_held

    @property
    def comes_next(self) -> bool:
        """Whether a hand-over is to stand in the place of the next plan."""
        wish, found = self._ledger.code.wish, self._ledger.code.probation
        if found is not None and found.withdrawn:
            return True
        return wish is not None and is_drained(self._ledger, wish)

    def catch_up(self) -> None:
        """Delivers what sinks lack, as the driver begins; then holds what a probation holds."""
        history = self._history
        new = new_sinks(self._ledger.code)
        self._deliverer.catch_up(history.commits, history.retained, new)
        self.hold()

    def hold(self) -> None:
        """Keeps deliveries back, if the probation is in restore mode; called when it leads."""
        self._deliverer.holds = self.holds

    def hand_over(self) -> Left | None:
        """Hands over if nothing waits any more; after that this driver writes nothing."""
        found = self._ledger.code.probation
        if found is not None and found.withdrawn:
            return LetGo(found.withdrawn)
        if self._ledger.code.wish is None:
            return None
        move = next_move(self._ledger, self._deliverer.acknowledged(), self._clock())
        if move is None:
            return None
        if isinstance(move, LapseBody):
            self._log.append(LAPSE, move)
            fold.lapsed(self._ledger, move)
            return None
        reach("before-handover-write")
        self._log.append(HANDOVER, move)
        reach("after-handover-write")
        fold.handed_over(self._ledger, move)
        return HandedOver(move.candidate, move.epoch)

    def confirms_with_commit(self) -> bool:
        """Whether the commit that the ledger has just taken in confirms; the ledger then says so.

        The entry is not in the log yet: nothing is released before `released`.
        """
        found = self._ledger.code.probation
        if found is None or found.commits < found.confirm_after:
            return False
        fold.confirmed(self._ledger)
        return True

    def confirm_when_quiet(self, *, ends: bool) -> bool:
        """Confirms where nothing is due: after some time and one epoch, or at the end of the run.

        Returns whether it has confirmed; what was held is to be delivered then.
        """
        found = self._ledger.code.probation
        if found is None:
            return False
        late = self._system.uptime_s() - self._began_s >= found.seconds
        if not ends and not (late and found.commits):
            return False
        body = ConfirmBody(found.candidate)
        reach("before-confirm-write")
        self._log.append(CONFIRM, body)
        fold.confirm(self._ledger, body)
        self.released()
        return True

    def released(self) -> None:
        """Lets go what was held, once the confirmation is in the log."""
        self._deliverer.holds = self.holds
