"""`KeyedStream`: what a stream can do once it has a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.errors import InvalidPipeline
from headrace.pipeline.keying import KeyGiven
from headrace.pipeline.operators.reduce import Reduce, ReduceOrdered
from headrace.pipeline.stream import Stream, V, _callable

if TYPE_CHECKING:
    from headrace.pipeline.builder import PipelineBuilder

S = TypeVar("S")


class KeyedStream(Stream[V]):
    """A stream and the way in which later steps take the key from its values."""

    def __init__(
        self,
        builder: PipelineBuilder,
        name: str,
        key: KeyGiven,
        columns: tuple[str, ...],
        *,
        made_by: tuple[str, ...] = (),
    ) -> None:
        super().__init__(builder, name, made_by=made_by)
        self.key = key
        self.key_columns = columns
        """How the parts of the key are called in rows that steps make."""

    def reduce(
        self,
        function: Callable[[V, S], Any],
        initial: S | None = None,
        *,
        outputs: bool = False,
        ordered: bool = False,
        **options: Any,
    ) -> Stream[Any]:
        """Folds a key's values into its state: `reduce(lambda value, total: total + value, 0)`.

        The function gets the value and the state (`initial` at first) and returns the new
        state, which is also sent on. With `outputs=True` it returns (state, output), and the
        output is sent unless it is None. `ordered=True` folds in the order of time.
        The state is anything that can be encoded and stays what it is (no tuples).
        """
        kind = ReduceOrdered if ordered else Reduce
        return self._step(
            "reduce",
            kind(_callable(function, "reduce"), initial, outputs=outputs),
            inputs={self.name: self.key},
            **options,
        )

    def _same_key(self, stream: Stream[Any]) -> KeyedStream[Any]:
        return KeyedStream(
            self._builder, stream.name, self.key, self.key_columns, made_by=stream._made_by
        )


def unkeyed(stream: Stream[Any], step: str) -> InvalidPipeline:
    """The error for a step that needs a key."""
    return InvalidPipeline(f"{stream.name}.{step} needs a key: {stream.name}.key_by(...) before it")
