"""The epoch log: one numbered sequence of entries, each written once (protocol A).

The bytes of an entry are described in `log/entry`.

- An entry is put-if-absent at the next position. By its nonce, a writer distinguishes its own
  entry from that of another writer.
- A put whose outcome is unknown is repeated, with the same bytes at the same position, until the
  position is occupied. Nothing else is written in the meantime.
- A driver takes over by appending a generation. After that, an entry of another driver at its next
  position means that it was fenced.
- A `Waiter` decides how long a put is repeated. A writer that gives up on a put whose outcome is
  unknown writes no more: its entry may still arrive, and would fence a second entry with another
  nonce.
- Positions are never reused: a trimmed directory leaves a marker. A writer looks for the marker
  after its put, so that it cannot mistake a position that was trimmed for a free one. One marker
  replaces those of a hundred directories, so that they stay few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Protocol

import msgspec

from headrace.errors import Fenced, StoreError
from headrace.limits import Limits
from headrace.log import paths
from headrace.log.entry import GENERATION, LogEntry, decode_entry, encode_entry, places_of
from headrace.store.store import Store


class Waiter(Protocol):
    """Decides how long to wait while the store fails, after some quick retries."""

    def wait(self, error: Exception) -> None:
        """Returns when it is time to retry; raises when it is time to give up."""

    def over(self) -> None:
        """Notes that the operation has succeeded."""

    def through(self, act: Callable[[], object]) -> object:
        """Retries `act` for as long as an outage prevents it."""


class FailAtOnce:
    """A `Waiter` that gives up at once."""

    def wait(self, error: Exception) -> None:
        """Raises the error."""
        raise error

    def over(self) -> None:
        """Does nothing."""

    def through(self, act: Callable[[], object]) -> object:
        """Tries once."""
        return act()


class EpochLog:
    """The log of one checkpoint, as one driver sees it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._limits = store.system.limits
        self._waiter: Waiter = FailAtOnce()
        self.position = 0
        """The last position read or written."""
        self.generation = 0
        self._in_doubt: int | None = None
        """The position of a put that was given up with an unknown outcome."""

    @property
    def limits(self) -> Limits:
        """The limits of its store."""
        return self._limits

    @property
    def knows_its_last_put(self) -> bool:
        """Whether the outcome of this driver's last put is known."""
        return self._in_doubt is None

    def last_position(self) -> int:
        """The highest position that is taken."""
        directories = [d for d in self._store.list(paths.LOG) if d.isdigit()]
        for directory in reversed(directories):
            names = [n for n in self._store.list(f"{paths.LOG}/{directory}") if n.isdigit()]
            if names:
                return int(names[-1])
        return 0

    def read(self, position: int) -> LogEntry | None:
        """The entry at a position; None if there is none."""
        name = self._name(position)
        try:
            data = self._store.read(name)
        except FileNotFoundError:
            return None
        return decode_entry(data, self._store.where(name))

    def backwards(self) -> Iterator[tuple[int, LogEntry]]:
        """Entries from the last to the first one that still exists."""
        position = self.last_position()
        while position > 0 and (entry := self.read(position)) is not None:
            yield position, entry
            position -= 1

    def follow(self) -> Iterator[tuple[int, LogEntry]]:
        """Entries after `position`, which advances with them."""
        while (entry := self.read(self.position + 1)) is not None:
            self.position += 1
            self.generation = max(self.generation, entry.generation)
            yield self.position, entry

    def take_over(
        self, waiter: Waiter | None = None, body: Callable[[int], object] | None = None
    ) -> Iterator[tuple[int, LogEntry]]:
        """Appends a generation; returns the entries of other drivers before it, to be folded in.

        The put of the generation itself is not retried if the store fails; later puts use `waiter`.
        `body` makes the entry's body for a generation. It is asked when all entries before the
        position are folded in, and again if another entry came first (L4); it may raise.
        """
        self._waiter = FailAtOnce()
        while True:
            yield from self.follow()
            self._keep_what_was_read()
            generation = self.generation + 1
            made = {"generation": generation} if body is None else body(generation)
            entry = self._entry(GENERATION, generation, made)
            if self._put(self.position + 1, entry) is None:
                self.position += 1
                self.generation = generation
                self._waiter = waiter or FailAtOnce()
                return

    def _keep_what_was_read(self) -> None:
        """Makes entries that were read durable: once folded in they count, whoever wrote them."""
        try:
            if self.position:
                self._store.sync(self._directory(self.position))
        except FileNotFoundError:
            pass  # Trimmed in the meantime: the put will notice.

    def append(self, kind: str, body: object, riders: Mapping[str, bytes] | None = None) -> int:
        """Appends an entry of this driver, with riders; Fenced if another driver was first."""
        riders = riders or {}
        entry = self._entry(kind, self.generation, body, riders)
        foreign = self._put(self.position + 1, entry, b"".join(riders.values()))
        if foreign is not None:
            raise self._fenced(foreign)
        self.position += 1
        return self.position

    def check(self) -> None:
        """Raises Fenced if another driver has taken over: an idle driver would not notice."""
        if self._in_doubt is not None:
            return  # The entry at that position may be this driver's own.
        foreign = self.read(self.position + 1)
        if foreign is not None:
            raise self._fenced(foreign)
        # An empty position proves nothing if other drivers have written further and trimmed.
        here, there = self._directory(self.position), self._directory(self.position + 1)
        if self._is_trimmed(here) or (there != here and self._is_trimmed(there)):
            raise Fenced("this driver is so far behind that the log was trimmed past it")

    def is_trimmed(self, position: int) -> bool:
        """Whether the log was trimmed past a position.

        Then an empty position after it is not the end of the log. And on a store without
        directories an entry there may be that of a driver which slept, put it, and has not taken
        it back yet.
        """
        return self._is_trimmed(self._directory(position))

    def _fenced(self, foreign: LogEntry) -> Fenced:
        return Fenced(
            f"another driver (generation {foreign.generation}) has taken over this checkpoint; "
            f"this one (generation {self.generation}) has stopped and wrote nothing more. "
            "Let one driver run per checkpoint"
        )

    def trim(self, before: int) -> None:
        """Removes whole directories of entries below `before`, and leaves markers."""
        keep = before // self._limits.log_directory_entries
        markers = set()
        for component in self._store.list(paths.LOG):
            number = component.removesuffix(paths.TRIMMED)
            if not number.isdigit() or int(number) >= keep:
                continue
            directory = f"{paths.LOG}/{number}"
            markers.add(int(number))
            if component == number:
                self._store.put_if_absent(paths.trimmed_marker(directory), b"")
                names = self._store.list(directory)
                self._store.delete_all([f"{directory}/{name}" for name in names])
                self._store.remove_directory(directory)
        self._gather(markers, keep)

    def _gather(self, markers: set[int], keep: int) -> None:
        """Replaces the markers of directories by one, where all around them are trimmed (A3)."""
        together = self._limits.log_markers_together
        whole = sorted(number for number in markers if number // together < keep // together)
        for first, some in groupby(whole, lambda number: number - number % together):
            self._store.put_if_absent(paths.gathered_marker(first, self._limits), b"")
            names = (f"{paths.LOG}/{number:06d}" for number in some)
            self._store.delete_all([paths.trimmed_marker(name) for name in names])

    def _entry(
        self, kind: str, generation: int, body: object, riders: Mapping[str, bytes] | None = None
    ) -> LogEntry:
        return LogEntry(
            kind,
            generation,
            self._store.system.token_hex(8),
            msgspec.Raw(msgspec.json.encode(body)),
            places_of(riders or {}),
        )

    def _put(self, position: int, entry: LogEntry, tail: bytes = b"") -> LogEntry | None:
        """Puts until the outcome is known: None if `entry` is there, otherwise the other entry."""
        if self._in_doubt is not None:
            raise StoreError(
                f"the put at log position {self._in_doubt} was given up with an unknown outcome, "
                "so this driver writes no more: start the pipeline again"
            )
        self._in_doubt = position
        data = encode_entry(entry, tail)
        attempt, waited = 0, False
        while True:
            failure: Exception | None = None
            try:
                found = self._attempt(position, entry, data)
            except (OSError, StoreError) as error:
                found, failure = None, error
            if found is not None:
                break
            attempt += 1
            if attempt < self._limits.log_puts_max:
                self._store.system.sleep(min(2.0, 0.05 * 2 ** (attempt - 1)))
                continue
            refused = StoreError(f"log position {position} could not be written: {failure}")
            refused.__cause__ = failure
            self._waiter.wait(refused)
            waited = True
        self._in_doubt = None
        if waited:
            self._waiter.over()
        return None if found.nonce == entry.nonce else found

    def _attempt(self, position: int, entry: LogEntry, data: bytes) -> LogEntry | None:
        """The entry at a position after one more put; None if that is unknown."""
        try:
            found = entry if self._try_put(position, data) else self._found(position)
        except (OSError, StoreError):
            found = self._read_back(position)
            if found is None:
                raise
        if found is not None and self._is_trimmed(self._directory(position)):
            self._store.delete(self._name(position))
            raise Fenced("this driver is so far behind that the log was trimmed past it")
        return found

    def _try_put(self, position: int, data: bytes) -> bool:
        directory = self._directory(position)
        if position % self._limits.log_directory_entries == 0 or position == 1:
            self._store.make_directory(directory)
        try:
            return self._store.put_if_absent(self._name(position), data)
        except FileNotFoundError:
            if self._is_trimmed(directory):
                raise Fenced(
                    f"the log was trimmed past this driver: {directory} was removed"
                ) from None
            # Trimming leaves a marker: without one, the whole checkpoint has moved or is unmounted.
            raise StoreError(
                f"{self._store.where()} has lost its {directory}: is it still "
                "mounted, at the same path?"
            ) from None

    def _read_back(self, position: int) -> LogEntry | None:
        """The entry after a put of unknown outcome; None if it is still unknown."""
        try:
            return self._found(position)
        except (OSError, StoreError):
            return None

    def _found(self, position: int) -> LogEntry | None:
        """The entry at a position, made durable: a name that is only visible may vanish again."""
        found = self.read(position)
        if found is not None:
            self._store.sync(self._directory(position))
        return found

    def _directory(self, position: int) -> str:
        return paths.log_directory(position, self._limits)

    def _name(self, position: int) -> str:
        return paths.log_entry(position, self._limits)

    def _is_trimmed(self, directory: str) -> bool:
        # In this order: the marker of many is there before those of each go.
        number = int(directory.rpartition("/")[2])
        gathered = paths.gathered_marker(number, self._limits)
        return any(map(self._is_there, (paths.trimmed_marker(directory), gathered)))

    def _is_there(self, marker: str) -> bool:
        try:
            self._store.read(marker)
        except FileNotFoundError:
            return False
        return True
