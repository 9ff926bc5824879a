"""The manifests of a sink in its store: found, read, and read in order by a reader with a cursor.

Upkeep merges manifests and deletes those that it merged, while others read. A manifest that is
listed and then missing was merged: the listing is repeated, and shows the merged one. A gap in the
numbers is looked at a second time, because some stores list in no order; it may be real, where a
sink was added, or its place was emptied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from headrace.errors import SinkError
from headrace.sinks.stored.manifest import (
    EPOCHS,
    EpochManifest,
    Manifest,
    ManifestName,
    decode_manifest,
)
from headrace.store.store import Store

LISTINGS_MAX = 20


class Manifests:
    """What lies below `_epochs/` of a sink's store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def names(self, after: int = 0) -> list[ManifestName]:
        """The manifests with an epoch greater than `after`, sorted; weak deliveries too."""
        behind = f"{EPOCHS}/{after:012d}" if after > 0 else ""
        found = []
        for info in self._store.walk(EPOCHS, after=behind):
            name = None if info is None else ManifestName.parse(info.name.rpartition("/")[2])
            if name is not None and name.last > after:
                found.append(name)
        return sorted(found)

    def read(self, name: ManifestName) -> Manifest:
        """A manifest; FileNotFoundError if it was merged into another."""
        return decode_manifest(self._store.read(name.name), self._store.where(name.name))

    def highest(self, committed: int) -> int:
        """The last epoch that has a manifest, or 0; `committed` is where it probably is."""
        for after in (max(0, committed - 64), 0):
            names = [name.last for name in self.names(after) if not name.weak]
            if names:
                return max(names)
        return 0

    def find(self, epoch: int) -> EpochManifest | None:
        """The manifest of one epoch; None if there is none.

        The heaviest that has it counts, for readers too: where manifests were merged, their names
        are free, and a driver that has slept may put one there again.
        """
        for _ in range(LISTINGS_MAX):
            for name in _heaviest_first(self.names(epoch - 1)):
                if not name.weak and name.first <= epoch <= name.last:
                    try:
                        return self.read(name).find(epoch)
                    except FileNotFoundError:
                        break  # merged just now: list again
            else:
                return None
        raise self._restless()

    def since(self, after: int) -> list[tuple[EpochManifest, Manifest, bool]]:
        """All epochs greater than `after` up to the last one, in order, each once.

        Weak deliveries of an epoch come before it, marked with True.
        """
        gaps: list[tuple[int, int]] = []
        for _ in range(LISTINGS_MAX):
            try:
                strong, weak = self._read_all(after)
            except FileNotFoundError:
                continue  # merged just now: list again
            if (missing := _gaps(after, sorted(strong))) != gaps:
                gaps = missing
                continue
            found: list[tuple[EpochManifest, Manifest, bool]] = []
            for epoch in sorted(strong):
                found += [(*each, True) for each in weak.get(epoch, [])]
                found.append((*strong[epoch], False))
            return found
        raise self._restless()

    def _read_all(
        self, after: int
    ) -> tuple[
        dict[int, tuple[EpochManifest, Manifest]], dict[int, list[tuple[EpochManifest, Manifest]]]
    ]:
        strong: dict[int, tuple[EpochManifest, Manifest]] = {}
        weak: dict[int, list[tuple[EpochManifest, Manifest]]] = {}
        names = self.names(after)
        # The heaviest first: what it covers need not be read a second time.
        nonces: set[str] = set()
        for name in _heaviest_first(names):
            lacking = range(max(name.first, after + 1), name.last + 1)
            if not name.weak and all(epoch in strong for epoch in lacking):
                continue
            for each, manifest in self._epochs(name):
                if each.epoch <= after or each.weak in nonces:
                    continue
                if each.weak:
                    nonces.add(each.weak)
                    weak.setdefault(each.epoch, []).append((each, manifest))
                else:
                    strong.setdefault(each.epoch, (each, manifest))
        return strong, weak

    def _epochs(self, name: ManifestName) -> Iterator[tuple[EpochManifest, Manifest]]:
        manifest = self.read(name)
        for epoch in manifest.epochs:
            yield epoch, manifest

    def _restless(self) -> SinkError:
        return SinkError(
            f"{self._store.where(EPOCHS)} has changed {LISTINGS_MAX} times while it was listed: "
            "try again"
        )


def _heaviest_first(names: Sequence[ManifestName]) -> list[ManifestName]:
    return sorted(names, key=lambda name: name.weight, reverse=True)


def _gaps(after: int, epochs: Sequence[int]) -> list[tuple[int, int]]:
    """(first, last) of each run of epochs that is missing between `after` and the last one."""
    return [(a + 1, b - 1) for a, b in pairwise([after, *epochs]) if b > a + 1]
