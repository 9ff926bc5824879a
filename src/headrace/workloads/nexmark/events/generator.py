"""The events of an auction, made from a seed: people, auctions and bids in proportion 1 : 3 : 46.

    Generator(seed=7).events(0, 1000)      # a table with the columns of all kinds
    Generator(seed=7).rows(0, 1000)        # the same as dicts, as in a file

Event n is the same in every range that contains it. Its kind is given by n % 50: 0 is a person,
1 to 3 are auctions, the rest are bids. Its time is `start_us + n / rate`, so times rise with n.
An event names people and auctions around the last one before it, and sometimes one that is yet
to come: at most `LEAD` ids ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import HeadraceError
from headrace.model.values.time import SECOND
from headrace.workloads.nexmark.events.chance import EventDice, Ints
from headrace.workloads.nexmark.events.columns import (
    AUCTION,
    AUCTION_COLUMNS,
    BID,
    BID_COLUMNS,
    EVENT_COLUMNS,
    PERSON,
    PERSON_COLUMNS,
)
from headrace.workloads.nexmark.events.texts import (
    CITIES,
    FIRST_NAMES,
    HOT_CHANNELS,
    LAST_NAMES,
    OTHER_CHANNELS,
    STATES,
    channels_and_urls,
    credit_cards,
    joined,
    padding,
)

START_US = 1_436_918_400_000_000
"""2015-07-15 00:00 UTC, as in the first Nexmark."""

PEOPLE_PER_ROUND, AUCTIONS_PER_ROUND, EVENTS_PER_ROUND = 1, 3, 50
FIRST_ID = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
AUCTIONS_IN_FLIGHT, ACTIVE_PEOPLE = 100, 1000
HOT_OF = 100
"""The first of each hundred auctions, or people, is hot."""
LEAD = 10
_WRITTEN_AT_ONCE = 50_000
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100

_NAME, _SURNAME, _EMAIL, _HOST, _CARD, _CITY, _STATE, _EXTRA = range(8)
_ITEM, _WORDS, _FIRST_PRICE, _RESERVE, _LENGTH, _IS_HOT, _SELLER, _CATEGORY = range(8, 16)
_AUCTION, _HOT_BIDDER, _BIDDER, _PRICE, _CHANNEL, _SIZE, _ITEM_SIZE, _WORDS_SIZE = range(16, 24)


@dataclass(frozen=True)
class Generator:
    """What decides the events."""

    seed: int = 1
    rate: float = 10_000.0
    """Events per second of event time."""
    start_us: int = START_US

    def __post_init__(self) -> None:
        if not 0 < self.rate <= SECOND:
            raise HeadraceError(
                f"nexmark: the rate is above 0 and at most 1,000,000 events/s, not {self.rate}"
            )

    def time_of(self, event: Any) -> Any:
        """The time of an event by its number, or of many."""
        return self.start_us + np.floor(np.asarray(event) * (SECOND / self.rate)).astype(np.int64)

    def events(self, first: int, end: int) -> pa.RecordBatch:
        """Events from number `first` to before `end`, with the columns of all kinds."""
        numbers = np.arange(first, max(first, end))
        of_round = numbers % EVENTS_PER_ROUND
        is_person = of_round < PEOPLE_PER_ROUND
        is_bid = of_round >= PEOPLE_PER_ROUND + AUCTIONS_PER_ROUND
        is_auction = ~is_person & ~is_bid
        parts = [
            (PERSON, numbers[is_person], self.people(numbers[is_person])),
            (AUCTION, numbers[is_auction], self.auctions(numbers[is_auction])),
            (BID, numbers[is_bid], self.bids(numbers[is_bid])),
        ]
        order = np.argsort(np.concatenate([at for _, at, _ in parts]), kind="stable")
        wide = pa.concat_tables(
            [
                table.append_column("kind", pa.array([kind] * len(at), pa.string()))
                for kind, at, table in parts
            ],
            promote_options="default",
        )
        taken = wide.select(EVENT_COLUMNS.names).take(pa.array(order)).combine_chunks()
        arrays = [
            column.chunk(0) if column.num_chunks else pa.array([], column.type)
            for column in taken.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, names=EVENT_COLUMNS.names)

    def rows(self, first: int, end: int) -> Iterator[dict[str, Any]]:
        """The same as dicts that have only the columns of their kind."""
        names = {
            PERSON: ["kind", *PERSON_COLUMNS.names],
            AUCTION: ["kind", *AUCTION_COLUMNS.names],
            BID: ["kind", *BID_COLUMNS.names],
        }
        for row in self.events(first, end).to_pylist():
            yield {name: row[name] for name in names[row["kind"]]}

    def people(self, numbers: Ints) -> pa.Table:
        """The people among events of these numbers, which must be people's."""
        dice = EventDice(self.seed, numbers)
        first, last = dice.below(_NAME, len(FIRST_NAMES)), dice.below(_SURNAME, len(LAST_NAMES))
        sizes = np.full(len(numbers), 7), np.full(len(numbers), 5)
        columns = {
            "id": pa.array(FIRST_ID + _last_person(numbers)),
            "name": joined(FIRST_NAMES.take(pa.array(first)), " ", LAST_NAMES.take(pa.array(last))),
            "email_address": joined(
                dice.text(_EMAIL, sizes[0]), "@", dice.text(_HOST, sizes[1]), ".com"
            ),
            "credit_card": credit_cards(dice, _CARD),
            "city": CITIES.take(pa.array(dice.below(_CITY, len(CITIES)))),
            "state": STATES.take(pa.array(dice.below(_STATE, len(STATES)))),
            "date_time": pa.array(self.time_of(numbers)),
        }
        return _table(columns, dice, PERSON_BYTES, PERSON_COLUMNS)

    def auctions(self, numbers: Ints) -> pa.Table:
        """The auctions among events of these numbers, which must be auctions'."""
        dice = EventDice(self.seed, numbers)
        times = self.time_of(numbers)
        first_bid = _price(dice, _FIRST_PRICE)
        # On average as long as it takes to open as many auctions as are in flight.
        ahead = AUCTIONS_IN_FLIGHT * EVENTS_PER_ROUND // AUCTIONS_PER_ROUND
        longest_us = 2 * (self.time_of(numbers + ahead) - times)
        lasting = 1 + np.floor(dice.share(_LENGTH) * longest_us).astype(np.int64)
        columns = {
            "id": pa.array(FIRST_ID + _last_auction(numbers)),
            "item_name": dice.text(_ITEM, 5 + dice.below(_ITEM_SIZE, 16)),
            "description": dice.text(_WORDS, 20 + dice.below(_WORDS_SIZE, 80)),
            "initial_bid": pa.array(first_bid),
            "reserve": pa.array(first_bid + _price(dice, _RESERVE)),
            "date_time": pa.array(times),
            "expires": pa.array(times + lasting),
            "seller": pa.array(_person(dice, numbers, _IS_HOT, _SELLER)),
            "category": pa.array(FIRST_CATEGORY + dice.below(_CATEGORY, CATEGORIES)),
        }
        return _table(columns, dice, AUCTION_BYTES, AUCTION_COLUMNS)

    def bids(self, numbers: Ints) -> pa.Table:
        """The bids among events of these numbers, which must be bids'."""
        dice = EventDice(self.seed, numbers)
        last = _last_auction(numbers)
        oldest = np.maximum(last - AUCTIONS_IN_FLIGHT, 0)
        near = oldest + dice.below(_AUCTION, last - oldest + 1 + LEAD)
        hot = last // HOT_OF * HOT_OF
        auction = np.where(dice.share(_IS_HOT) < 1 / 2, hot, near)
        # Half of the bids come from one of the four hot channels.
        chosen = dice.below(_CHANNEL, 2 * OTHER_CHANNELS)
        channel = np.where(
            chosen < OTHER_CHANNELS, chosen % len(HOT_CHANNELS), chosen - OTHER_CHANNELS
        )
        channel = np.where(chosen < OTHER_CHANNELS, channel, channel + len(HOT_CHANNELS))
        names, urls = channels_and_urls(self.seed)
        columns = {
            "auction": pa.array(FIRST_ID + auction),
            "bidder": pa.array(_person(dice, numbers, _HOT_BIDDER, _BIDDER)),
            "price": pa.array(_price(dice, _PRICE)),
            "channel": names.take(pa.array(channel)),
            "url": urls.take(pa.array(channel)),
            "date_time": pa.array(self.time_of(numbers)),
        }
        return _table(columns, dice, BID_BYTES, BID_COLUMNS)


def write_events(file: Path, generator: Generator, count: int) -> None:
    """Writes the first events as JSON lines. The file appears when it is complete."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(f"{file.name}.partial")
    encode = msgspec.json.Encoder().encode_lines
    with partial.open("wb") as out:
        for first in range(0, count, _WRITTEN_AT_ONCE):
            end = min(count, first + _WRITTEN_AT_ONCE)
            out.write(encode(list(generator.rows(first, end))))
    partial.replace(file)


def _last_person(numbers: Ints) -> Ints:
    """The number of the last person up to and including an event."""
    return numbers // EVENTS_PER_ROUND


def _last_auction(numbers: Ints) -> Ints:
    """The number of the last auction up to an event; 0 before the first."""
    rounds, of_round = np.divmod(numbers, EVENTS_PER_ROUND)
    opened = np.clip(of_round - PEOPLE_PER_ROUND + 1, 0, AUCTIONS_PER_ROUND)
    return np.maximum(rounds * AUCTIONS_PER_ROUND + opened - 1, 0)


def _person(dice: EventDice, numbers: Ints, is_hot: int, field: int) -> Ints:
    """A hot person three times in four, otherwise an active one, perhaps one yet to come."""
    last = _last_person(numbers)
    active = np.minimum(last + 1, ACTIVE_PEOPLE)
    near = last + 1 - active + dice.below(field, active + LEAD)
    hot = last // HOT_OF * HOT_OF
    return np.asarray(FIRST_ID + np.where(dice.share(is_hot) < 3 / 4, hot, near), np.int64)


def _price(dice: EventDice, field: int) -> Ints:
    return np.asarray(np.round(10.0 ** (6 * dice.share(field)) * 100), np.int64)


def _table(columns: dict[str, pa.Array], dice: EventDice, size: int, schema: pa.Schema) -> pa.Table:
    """The columns, and `extra`, which brings events to their average size in bytes."""
    used = np.zeros(len(dice), np.int64)
    for column in columns.values():
        if pa.types.is_string(column.type):
            used += pc.binary_length(column).to_numpy(zero_copy_only=False)
        else:
            used += 8
    columns["extra"] = dice.text(_EXTRA, padding(size - used, dice, _SIZE))
    return pa.table(columns).select(schema.names).cast(schema)
