"""Names, places, channels and urls of generated events."""

from __future__ import annotations

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.workloads.nexmark.events.chance import EventDice, Ints

_FIRST = "Peter,Paul,Luke,John,Saul,Vicky,Kate,Julie,Sarah,Deiter,Walter"
_LAST = "Shultz,Abrams,Spencer,White,Bartels,Walton,Smith,Jones,Noris"
_CITIES = "Phoenix,Los Angeles,San Francisco,Boise,Portland,Bend,Redmond,Seattle,Kent,Cheyenne"

FIRST_NAMES = pa.array(_FIRST.split(","))
LAST_NAMES = pa.array(_LAST.split(","))
CITIES = pa.array(_CITIES.split(","))
STATES = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
OTHER_CHANNELS = 10_000
EXTRA_LENGTH_MIN = 10

_FIELD_OF_ID, _FIELD_OF_CHANCE, _FIELD_OF_PLACES = 1, 2, 3


def joined(*parts: pa.Array | str) -> pa.Array:
    """Texts one after the other."""
    return pc.binary_join_element_wise(*parts, "")


def credit_cards(dice: EventDice, field: int) -> pa.Array:
    """Four groups of four digits."""
    digits = dice.words(field).view(np.uint16).reshape(len(dice), 4) % np.uint16(10_000)
    groups = [
        pc.utf8_lpad(pa.array(digits[:, n].astype(np.int64)).cast(pa.string()), 4, "0")
        for n in range(4)
    ]
    return pc.binary_join_element_wise(*groups, " ")


def padding(missing: Ints, dice: EventDice, field: int) -> Ints:
    """How long `extra` is: what is missing from the average size, give or take a fifth.

    It is never empty, so events with long texts are a little longer than the average.
    """
    wanted = np.maximum(missing, EXTRA_LENGTH_MIN)
    spread = wanted // 5
    return np.asarray(wanted - spread + dice.below(field, 2 * spread + 1), np.int64)


@cache
def channels_and_urls(seed: int) -> tuple[pa.Array, pa.Array]:
    """The names and urls of all channels, the hot ones first.

    The url of nine in ten of the other channels carries a `channel_id`.
    """
    count = len(HOT_CHANNELS) + OTHER_CHANNELS
    dice = EventDice(seed + 2**62, np.arange(count))
    names = pa.array([*HOT_CHANNELS, *(f"channel-{n}" for n in range(OTHER_CHANNELS))])
    five = np.full(count, 5)
    a, b, c = (dice.text(_FIELD_OF_PLACES + n, five) for n in range(3))
    base = joined("https://www.nexmark.com/", a, "/", b, "/", c, "/item.htm?query=1")
    ids = joined("&channel_id=", pa.array(dice.below(_FIELD_OF_ID, 2**31 - 1)).cast(pa.string()))
    carries = dice.share(_FIELD_OF_CHANCE) < 9 / 10
    carries[: len(HOT_CHANNELS)] = False
    return names, joined(base, pc.if_else(pa.array(carries), ids, ""))
