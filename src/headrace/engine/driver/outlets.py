"""Questions that a driver asks a sink, with errors that name it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from headrace.errors import IncompatibleState, InvalidPipeline, SinkError, StoreError
from headrace.pipeline.graph.graph import Outlet
from headrace.store.store import Store


@contextmanager
def named(outlet: Outlet) -> Iterator[None]:
    """Adds the sink's name to its refusal: the sink itself knows only its place."""
    try:
        yield
    except IncompatibleState as error:
        raise IncompatibleState(f"sink {outlet.name!r}: {error}") from error


def refuse_one_target(outlets: Iterable[Outlet]) -> None:
    """Refuses two open sinks that turn out to write to one target: it keeps one last epoch."""
    targets: dict[str, str] = {}
    for outlet in outlets:
        target = outlet.sink.target()
        if target is not None and targets.setdefault(target, outlet.name) != outlet.name:
            raise InvalidPipeline(
                f"sinks {targets[target]!r} and {outlet.name!r} both write to {target}, which "
                "would take the epochs of one for those of the other: give each its own"
            )


def has(store: Store | None, name: str) -> bool:
    """Whether a sink's own store has a file."""
    if store is None:
        return False
    try:
        store.stat(name)
    except FileNotFoundError:
        return False
    return True


def high_water(outlet: Outlet) -> int:
    """The last epoch that a sink has, as the sink says."""
    try:
        return outlet.sink.high_water()
    except (StoreError, OSError) as error:
        raise SinkError(
            f"sink {outlet.name!r} cannot be asked for its last epoch: {error}"
        ) from error
