"""`reduce`: a function of a value and the key's state returns the new state and an output."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from dataclasses import is_dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.errors import InvalidPipeline, InvalidRecord
from headrace.model.computation import Computation
from headrace.model.state import state
from headrace.model.values.codec import packed
from headrace.model.values.shown import shown
from headrace.model.values.time import Duration, duration

if TYPE_CHECKING:
    from headrace.model.context import Context
    from headrace.model.record import Record


KEPT_KINDS = (tuple, set, frozenset)
"""Types whose values would decode as lists if the type was not declared."""


class Reduce(Computation):
    """Folds a key's values, in arrival order, into its state.

    The function gets (value, state) and returns the new state or, with `outputs`, a pair (new
    state, output); an output of None is not sent. Without `outputs`, each new state is sent.
    """

    folded: Any = state(None)
    prompt = True

    def __init__(
        self,
        function: Callable[..., Any],
        initial: Any,
        *,
        outputs: bool,
        ttl: Duration | None = None,
    ) -> None:
        self.function, self.initial, self.outputs = function, initial, outputs
        self.kept = str(ttl)

    def process_record(self, record: Record[Any], ctx: Context) -> None:
        """Folds one value."""
        # Each key gets its own copy, because the function may change it in place.
        before = copy.deepcopy(self.initial) if self.folded is None else self.folded
        try:
            made = self.function(record.value, before)
        except (TypeError, AttributeError, LookupError) as error:
            error.add_note(
                "reduce calls f(value, state), the value first (functools.reduce does it the other "
                f"way round): value was a {type(record.value).__name__}, state a "
                f"{type(before).__name__}"
            )
            raise
        if not self.outputs:
            self.folded = self._state(made)
            ctx.produce(made)
            return
        if not isinstance(made, tuple) or len(made) != 2:
            raise TypeError(
                f"reduce(..., outputs=True): the function returns (state, output), not "
                f"{shown(made, 80)}"
            )
        folded, output = made
        self.folded = self._state(folded)
        if output is not None:
            ctx.produce(output)

    def _state(self, folded: Any) -> Any:
        kind = type(folded)
        if kind in KEPT_KINDS and not isinstance(self.initial, kind):
            raise TypeError(
                f"reduce: the new state is a {kind.__name__} ({shown(folded, 80)}), which would "
                f"come back as a list: give such an initial= too, or use a list"
            )
        return folded


class ReduceOrdered(Reduce, ordered=True):
    """Folds a key's values in time order."""

    prompt = False


def reducer(
    function: Callable[..., Any],
    initial: Any,
    outputs: bool,
    ordered: bool,
    ttl: Duration | None,
    *,
    where: str,
) -> Reduce:
    """The computation of a `reduce`. Its class declares the TTL and the type of the state."""
    try:
        packed(initial, what="initial=")
    except InvalidRecord as error:
        raise InvalidPipeline(f"{where}: {error}") from None
    kept_us = None if ttl is None else duration(ttl, what=f"{where}: ttl=")
    kept = {} if kept_us is None else {"ttl": timedelta(microseconds=kept_us)}
    cls: Any = ReduceOrdered if ordered else Reduce
    kind = type(initial)
    body: dict[str, Any] = {"__module__": cls.__module__, "__doc__": cls.__doc__}
    if kind in KEPT_KINDS or issubclass(kind, msgspec.Struct) or is_dataclass(kind):
        # Without its type, the state would decode as a list or a dict.
        body |= {"folded": state(None), "__annotations__": {"folded": kind | None}}
    if len(body) > 2 or kept:
        cls = types.new_class(cls.__name__, (cls,), kept, lambda space: space.update(body))
    made: Reduce = cls(function, initial, outputs=outputs, ttl=ttl)
    return made
