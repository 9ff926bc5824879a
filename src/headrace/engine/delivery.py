"""Delivery of committed epochs to sinks: in epoch order, again after a crash until acknowledged."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from headrace.errors import CorruptCheckpoint, HeadraceError, SinkError
from headrace.failpoints import reach
from headrace.log import paths
from headrace.log.store import Store
from headrace.model.sink import Delivery, Opening, Part
from headrace.pipeline.graph import Graph, Outlet
from headrace.plan.epoch import Commit, StagedFile
from headrace.state.segment import digest_of


class Deliverer:
    """Hands epochs to every sink of a pipeline."""

    def __init__(self, graph: Graph, store: Store, checkpoint: str, spark: Any) -> None:
        self._outlets = graph.outlets
        self._store = store
        self._checkpoint = checkpoint
        self._spark = spark

    def open(self, generation: int, committed: int) -> None:
        """A driver has taken over."""
        for outlet in self._outlets.values():
            directory = f"{paths.SINKS}/{paths.safe(outlet.name)}"
            self._store.make_directory(directory)
            where = os.path.join(self._store.root or "", directory)
            outlet.sink.open(Opening(self._checkpoint, generation, committed, where))

    def deliver(self, commit: Commit) -> None:
        """Delivers an epoch to every sink that does not have it yet."""
        for outlet in self._outlets.values():
            if outlet.sink.high_water() < commit.epoch:
                reach("before-delivery")
                strong = [f for f in commit.staged if f.sink == outlet.name and not f.weak]
                self._hand_over(outlet, commit.epoch, strong, weak=False)

    def deliver_weak(self, commit: Commit) -> None:
        """Delivers what weak productions made, before the commit is written."""
        for outlet in self._outlets.values():
            weak = [f for f in commit.staged if f.sink == outlet.name and f.weak]
            if weak:
                self._hand_over(outlet, commit.epoch, weak, weak=True)

    def acknowledged(self) -> int:
        """The last epoch that every sink has."""
        waters = [outlet.sink.high_water() for outlet in self._outlets.values()]
        return min(waters, default=2**62)

    def close(self) -> None:
        """The run has ended."""
        for outlet in self._outlets.values():
            outlet.sink.close()

    def _hand_over(
        self, outlet: Outlet, epoch: int, files: Iterable[StagedFile], *, weak: bool
    ) -> None:
        parts = [self._part(outlet.name, file) for file in sorted(files, key=lambda f: f.label)]
        delivery = Delivery(epoch, self._checkpoint, parts, self._spark, weak)
        try:
            outlet.sink.deliver(delivery)
        except HeadraceError:
            raise
        except Exception as error:
            raise SinkError(
                f"sink {outlet.name!r} refused epoch {epoch}: {type(error).__name__}: {error}. "
                "The epoch is committed and will be delivered when the pipeline starts again"
            ) from error

    def _part(self, sink: str, file: StagedFile) -> Part:
        name = f"{paths.staged_directory(sink)}/{file.name}"

        def read() -> bytes:
            data = self._store.read(name)
            if digest_of(data) != file.digest:
                raise CorruptCheckpoint(f"{name} is damaged: its digest is not the committed one")
            return data

        path = os.path.join(self._store.root, name) if self._store.root else None
        return Part(file.label, file.digest, read, path)
