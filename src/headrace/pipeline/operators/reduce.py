"""`reduce`: streaming MapReduce. A function takes a value and the key's state, and gives both."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.model.computation import Computation
from headrace.model.state import state

if TYPE_CHECKING:
    from headrace.model.context import Context
    from headrace.model.record import Record


class Reduce(Computation):
    """Folds a key's values, in arrival order, into its state.

    The function gets (value, state) and returns the new state, or a pair (new state,
    output) where `outputs` is set; an output of None is not sent. Without outputs, each
    new state is sent.
    """

    folded: Any = state(None)
    prompt = True

    def __init__(self, function: Callable[..., Any], initial: Any, *, outputs: bool) -> None:
        self.function, self.initial, self.outputs = function, initial, outputs

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """One value."""
        before = self.initial if self.folded is None else self.folded
        made = self.function(record.value, before)
        if not self.outputs:
            self.folded = made
            ctx.produce(made)
            return
        if not isinstance(made, tuple) or len(made) != 2:
            raise TypeError(
                f"reduce(..., outputs=True): the function returns (state, output), not {made!r:.80}"
            )
        self.folded, output = made
        if output is not None:
            ctx.produce(output)


class ReduceOrdered(Reduce, ordered=True):
    """The same in the order of time."""

    prompt = False
