"""Every kind of fault: where it may strike, and how likely it is there.

A new kind is one line here, and a call of `chance.strikes(KIND, place)` where it happens. Each kind
has dice of its own (see `Chance`), so a new kind changes only the schedules that have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

DISK, OBJECTS = "disk", "objects"
FACES = (DISK, OBJECTS)
"""What a checkpoint lies on: a filesystem, or an object store."""
STATE_STORE = "state store"
"""Kinds of schedules that have a state store beside the checkpoint."""


@dataclass(frozen=True)
class FaultKind:
    """One kind; `likely` maps each of its places to the probability at every visit."""

    name: str
    likely: Mapping[str, float] = field(hash=False)
    around: bool = False
    """Whether it strikes only drivers with a lease and retries, as `headrace run` starts them."""
    face: str | None = None
    """The face that has it; None where both have."""
    apart: bool = False
    """Whether it is chosen by dice of its own, so that other schedules keep their kinds."""


KINDS: list[FaultKind] = []


def _kind(
    name: str,
    likely: Mapping[str, float],
    *,
    around: bool = False,
    face: str | None = None,
    apart: bool = False,
) -> FaultKind:
    KINDS.append(kind := FaultKind(name, likely, around, face, apart))
    return kind


DRIVER_DIES = _kind("driver dies", {"life": 0.8, "merge": 0.05, "marker": 0.2, "trim": 0.6})
DRIVER_PAUSES = _kind(
    "driver pauses",
    {
        "life": 0.7,
        "failpoint": 0.02,
        "call": 0.01,
        "unsynced name": 0.15,
        "marker": 0.3,
        "trim": 0.3,
        "intent": 0.05,
    },
)
DRIVER_DIES_IN_RARE_PLACES = _kind(
    "driver dies in rare places", {"plan": 0.3, "ring": 0.4, "trim": 0.5, "collect": 0.2}
)
RIVAL_DRIVER = _kind("rival driver", {"turn": 0.15})
TASK_DIES = _kind("task dies", {"task": 0.15})
TASK_RUNS_TWICE = _kind("task runs twice", {"task": 0.15})
TASK_IS_A_ZOMBIE = _kind("task is a zombie", {"task": 0.15})
OUTPUT_LOST = _kind("output lost", {"task": 0.1})
MIXED_ATTEMPTS = _kind("mixed attempts", {"task": 0.2})
JOB_ABORTED = _kind("job aborted", {"level": 0.1})
WORKER_LOST = _kind("worker lost", {"task": 0.1})
DISK_FAILS = _kind("disk fails", {"link or rename": 0.05, "other call": 0.004}, face=DISK)
POWER_FAILS = _kind("power fails", {"life": 0.15, "turn": 0.15, "unsynced read": 0.7}, face=DISK)
SINK_FAILS = _kind("sink fails", {"delivery": 0.2})
RING_CHANGES = _kind("ring changes", {"life": 0.3, "step": 0.4})
TASKS_CHANGE = _kind("tasks change", {"step": 0.3})
CLOCK_JUMPS = _kind("clock jumps", {"life": 0.5, "idle hour": 0.1, "turn": 0.15})
CODE_CHANGES = _kind("code changes", {"start": 0.4})
SLOTS_LIMITED = _kind("slots limited", {"step": 0.5})
SLOT_SLEEPS = _kind("slot sleeps", {"task": 0.1})
LOAD_MOVES = _kind("load moves", {"epoch": 0.3})
WRITTEN_STATE_LOST = _kind(
    "written state lost", {"turn": 0.3, "power": 0.06, "try": 0.03, "driver": 0.1}, face=DISK
)
EXECUTORS_LOST = _kind(
    "executors lost",
    {
        "turn": 0.15,
        "task": 0.03,
        "move": 0.05,
        "swap": 0.04,
        "disk": 0.03,
        "fragment": 0.1,
        "look": 0.2,
        "try": 0.03,
        "driver": 0.1,
    },
    face=OBJECTS,
    apart=True,
)
EXECUTORS_SHARE = 0.12
"""How often a schedule over an object store has an interval, and executors with disks."""

STANDBY_DRIVER = _kind("standby driver", {"turn": 0.15}, around=True)
LEASE_FAILS = _kind("lease fails", {"read": 0.2, "file": 0.1}, around=True)
STORE_AWAY = _kind("store away", {"turn": 0.12}, around=True)
SINK_AWAY = _kind("sink away", {"turn": 0.12}, around=True)
READER_FROM_OUTSIDE = _kind("reader from outside", {"turn": 0.2}, around=True)
REQUESTER = _kind("requester", {"turn": 0.3, "entry": 0.15, "stop": 0.4}, around=True)
COMPACTION_ASKED = _kind("compaction asked", {"turn": 0.25}, around=True)
STATE_COPIED = _kind("state copied", {"turn": 0.25}, around=True)

ANSWER_LOST = _kind(
    "answer lost",
    {"put": 0.08, "overwrite": 0.02, "copy": 0.1, "delete": 0.03, "look": 0.004},
    face=OBJECTS,
)
REQUEST_LATE = _kind(
    "request lands late",
    {"put": 0.06, "overwrite": 0.03, "copy": 0.1, "delete": 0.08},
    face=OBJECTS,
)
REQUEST_TWICE = _kind(
    "request lands twice",
    {"put": 0.05, "overwrite": 0.03, "copy": 0.1, "delete": 0.08},
    face=OBJECTS,
)
REFUSED_BY_ITSELF = _kind("put refused by itself", {"put": 0.08}, face=OBJECTS)
PUT_CONFLICTS = _kind("put conflicts", {"put": 0.08}, face=OBJECTS)
THROTTLING = _kind("throttling", {"request": 0.004}, face=OBJECTS)
SLOW_ANSWER = _kind("slow answer", {"request": 0.01}, face=OBJECTS)

STATE_STORE_RESTARTS = _kind("state store restarts", {"request": 0.02}, face=STATE_STORE)
STATE_STORE_PUT_BACK = _kind("state store put back", {"request": 0.01}, face=STATE_STORE)
APPLIER_SLEEPS = _kind("applier sleeps", {"request": 0.02}, face=STATE_STORE)
READER_OF_STATE_STORE = _kind("reader of state store", {"turn": 0.4}, face=STATE_STORE)
