"""The workloads of `headrace chaos`: small pipelines whose right output is known in advance.

Each has a reference written in plain Python, which shares no code with the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from headrace.testing.simulator.contract import Workload
from headrace.testing.simulator.workloads.baskets import Baskets
from headrace.testing.simulator.workloads.calls import Calls
from headrace.testing.simulator.workloads.diamond import Diamond
from headrace.testing.simulator.workloads.dice import DiceWorkload
from headrace.testing.simulator.workloads.ids import OrderedIds, UnorderedIds
from headrace.testing.simulator.workloads.levels import AtLeastOnce, AtMostOnce
from headrace.testing.simulator.workloads.limited import Limited
from headrace.testing.simulator.workloads.moving import Moving
from headrace.testing.simulator.workloads.refreshed import Refreshed
from headrace.testing.simulator.workloads.ties import Ties
from headrace.testing.simulator.workloads.transfers import Transfers

WORKLOADS: Mapping[str, Callable[[Random], Workload]] = {
    "unordered-ids": UnorderedIds,
    "ordered-ids": OrderedIds,
    "transfers": Transfers,
    "diamond": Diamond,
    "dice": DiceWorkload,
    "calls": Calls,
    "ties": Ties,
    "at-least-once": AtLeastOnce,
    "at-most-once": AtMostOnce,
    "limited": Limited,
    "moving": Moving,
    "baskets": Baskets,
    "refreshed": Refreshed,
}
