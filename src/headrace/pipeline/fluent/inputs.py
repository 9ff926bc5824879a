"""How streams are given to a computation, and what comes back where it makes none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidPipeline
from headrace.model.key_spec import KeyGiven
from headrace.pipeline.fluent.stream import Stream

if TYPE_CHECKING:
    from headrace.pipeline.fluent.builder import PipelineBuilder

NO_STREAM_HAS = ("name", "key")


class NoStream(Stream[Any]):
    """What `compute` gives where a computation has no outputs: nothing can follow."""

    def __init__(self, builder: PipelineBuilder, computation: str) -> None:
        super().__init__(builder, "")
        self._computation = computation

    if not TYPE_CHECKING:

        def __getattribute__(self, name: str) -> Any:
            if not name.startswith("_") and name not in NO_STREAM_HAS:
                raise InvalidPipeline(
                    f"computation {self._computation!r} has no outputs=, so there is no stream to "
                    f'{name}: compute(..., outputs="...")'
                )
            return super().__getattribute__(name)


def inputs_of(given: Any, builder: PipelineBuilder, where: str) -> dict[str, KeyGiven]:
    """Stream's name -> key; a stream stands for its name."""
    if isinstance(given, str | Stream):
        name = given if isinstance(given, str) else given.name
        raise InvalidPipeline(f"{where}: say by which key: inputs={{{name!r}: key}}, or None")
    if not isinstance(given, Mapping):
        raise InvalidPipeline(f"{where}: inputs={{stream: key}}, not {given!r:.80}")
    found: dict[str, KeyGiven] = {}
    for stream, key in given.items():
        if isinstance(stream, Stream) and stream._builder is not builder:
            other = stream._builder.name
            raise InvalidPipeline(
                f"{where}: {stream.name!r} belongs to another pipeline, {other!r}"
            )
        name = stream.name if isinstance(stream, Stream) else stream
        if name in found:
            raise InvalidPipeline(f"{where}: the input {name!r} is there twice")
        found[name] = key
    return found
