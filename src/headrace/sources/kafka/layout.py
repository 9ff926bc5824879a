"""Where a checkpoint began to read each partition, where it stops, and what its positions mean.

All of it is written once, before the first plan, so that every driver of a checkpoint agrees: the
end of a topic, or the first record after a time, is another one a minute later.

A position is an offset plus the *base* of its partition, which is 0. Only where a topic was deleted
and made again, and that was accepted, has the new topic another base: its records come after those
of the old one, and no position is used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from headrace.errors import InvalidPipeline, SourceError
from headrace.kafka_client import Brokers, Place, Topic
from headrace.model.values.time import instant
from headrace.store.store import Store

_LAYOUT = "offsets"
_BASES = "bases"


class Layout(msgspec.Struct, frozen=True):
    """What was decided when a checkpoint first started."""

    topics: dict[str, str]
    """Topic -> its id."""
    starts: dict[str, int]
    """Split -> the first offset to read."""
    stops: dict[str, int] | None = None
    """Split -> the offset at which it ends; None if it does not end."""


def split_of(place: Place) -> str:
    """The name of a split; names of topics have no slash."""
    return f"{place[0]}/{place[1]}"


def place_of(split: str) -> Place:
    """The topic and the partition of a split."""
    topic, _, partition = split.rpartition("/")
    return topic, int(partition)


def places_in(topics: Mapping[str, Topic]) -> list[Place]:
    """All partitions of topics."""
    return [(name, number) for name in sorted(topics) for number in range(topics[name].partitions)]


class Bound:
    """`start=` or `stop=`: the beginning, the end, a time, or offsets by partition."""

    def __init__(self, given: Any, what: str, words: Iterable[str]) -> None:
        self.what = what
        self.word = given if isinstance(given, str) and given in words else ""
        self.at_us: int | None = None
        self.offsets: dict[int | str, int] = {}
        if isinstance(given, Mapping):
            self.offsets = dict(given)
            for partition, offset in self.offsets.items():
                if not _is_place(partition) or type(offset) is not int or offset < 0:
                    raise InvalidPipeline(
                        f"{what}: offsets are numbers by partition, {{0: 1200, 1: 1187}}, or by "
                        f'topic and partition, {{"orders/0": 1200}}; not {partition!r}: {offset!r}'
                    )
        elif not self.word:
            # To Kafka, negative times are words: -1 means the end.
            self.at_us = max(0, _moment(given, what, words))

    def find(self, brokers: Brokers, topics: Mapping[str, Topic]) -> dict[str, int]:
        """The offsets that it means now, by split."""
        places = places_in(topics)
        firsts, ends = brokers.first_offsets(places), brokers.end_offsets(places)
        if self.word == "earliest":
            found: Mapping[Place, int | None] = firsts
        elif self.word == "latest":
            found = ends
        elif self.at_us is not None:
            found = brokers.offsets_at(places, self.at_us)
        else:
            named = self._given(places, topics)
            for place, given in named.items():
                self._require(place, given, firsts[place], ends[place])
            found = named
        chosen = {}
        for place in places:
            offset = found[place]
            # After the last committed record there may be others, which are not committed yet.
            chosen[split_of(place)] = ends[place] if offset is None else min(offset, ends[place])
        return chosen

    def _given(self, places: list[Place], topics: Mapping[str, Topic]) -> dict[Place, int]:
        named = {
            (next(iter(topics)), key) if isinstance(key, int) and len(topics) == 1 else key: offset
            for key, offset in self.offsets.items()
        }
        named = {place_of(k) if isinstance(k, str) else k: o for k, o in named.items()}
        unknown = [
            split_of(key) if type(key) is tuple else key for key in named if key not in places
        ]
        lacking = [split_of(place) for place in places if place not in named]
        if unknown or lacking:
            shown = ", ".join(map(str, unknown or lacking))
            how = "names what is not there" if unknown else "lacks a partition"
            raise SourceError(
                f"{self.what} {how}: {shown}. Give one offset for each of "
                f"{', '.join(map(split_of, places))}"
            )
        return named  # type: ignore[return-value]

    def _require(self, place: Place, offset: int, first: int, end: int) -> None:
        if not first <= offset <= end:
            raise SourceError(
                f"{self.what}: {split_of(place)} has no offset {offset}: its records go from "
                f"{first} up to {end}"
            )


def _is_place(given: Any) -> bool:
    if type(given) is not str:
        return type(given) is int
    topic, _, partition = given.rpartition("/")
    return bool(topic) and partition.isascii() and partition.isdigit()


def _moment(given: Any, what: str, words: Iterable[str]) -> int:
    try:
        return instant(datetime.fromisoformat(given) if isinstance(given, str) else given)
    except (TypeError, ValueError):
        listed = ", ".join(f'"{word}"' for word in words)
        raise InvalidPipeline(
            f"{what} is {listed}, a time with its zone (text such as "
            '"2024-05-01T12:30:00+02:00", a datetime, or microseconds since 1970), or offsets by '
            f"partition, not {given!r:.80}"
        ) from None


def laid_out(store: Store, make: Callable[[], Layout]) -> Layout:
    """The layout of a checkpoint; made by whichever driver is first."""
    store.make_directory("")
    try:
        written = store.read(_LAYOUT)
    except FileNotFoundError:
        store.put_if_absent(_LAYOUT, msgspec.json.encode(make()))
        written = store.read(_LAYOUT)
    try:
        return msgspec.json.decode(written, type=Layout)
    except msgspec.DecodeError as error:
        raise SourceError(f"{store.where(_LAYOUT)} is damaged: {error}") from error


def bases_in(store: Store) -> dict[tuple[str, str], int]:
    """(split, id of its topic) -> its base, where that is not 0."""
    store.make_directory(_BASES)
    found = {}
    for name in store.list(_BASES):
        try:
            split, topic, base = msgspec.json.decode(
                store.read(f"{_BASES}/{name}"), type=tuple[str, str, int]
            )
        except msgspec.DecodeError as error:
            raise SourceError(f"{store.where(f'{_BASES}/{name}')} is damaged: {error}") from error
        found[split, topic] = base
    return found


def keep_base(store: Store, split: str, topic_id: str, base: int) -> int:
    """Writes the base of a partition, once; returns the one that counts."""
    # Ids are base64, which has characters that names cannot have.
    name = f"{_BASES}/{split.replace('/', '=')}={topic_id.encode().hex()}"
    store.put_if_absent(name, msgspec.json.encode((split, topic_id, base)))
    written = msgspec.json.decode(store.read(name), type=tuple[str, str, int])
    return written[2]
