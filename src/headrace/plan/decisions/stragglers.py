"""Which slots of a plan have a limit, and how limits come, change and go (P1, P2, P7). Pure.

A slot that is much slower than the others of its computation holds up its epoch. The driver notices
that by its own clock, and reads how far slow tasks have come. What it decides stands in the log:
the void of the plan names the limit, and commits change it. So a new driver plans alike.

A limit stays until the slot's whole input was below it for two periods. One plan is voided per
straggler, not one per epoch: the limit of a slot that already has one is only changed by commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

import msgspec

from headrace.limits import LIMITS, Limits
from headrace.plan.epoch import CARRIED, Plan, Report
from headrace.plan.overload import SlotLimit
from headrace.plan.units import slot_label

SHRINK, GROW = 0.5, 2.0
"""By how much a commit changes a limit, at most."""
BACKLOG_EPOCHS = 4
"""If records wait that need more epochs than this, less is read."""


class WorkMark(msgspec.Struct, frozen=True, array_like=True):
    """How far a task has come with a slot that takes long. Advice: nothing depends on it."""

    label: str
    seconds: float
    """For how long it has run."""
    records: int
    """How many records it is to process."""
    done: int
    """How many it has processed; 0 where that is not known, as all go to one call."""
    wall: int = 0
    """The wall time of its plan: an earlier plan of the same epoch may have been voided."""


def limits_of_plan(
    known: Mapping[str, SlotLimit], limited: Mapping[str, int], slots: Mapping[str, Iterable[int]]
) -> dict[str, int]:
    """Label -> limit, for the slots that a plan has."""
    if not known and not limited:
        return {}
    wanted = {**{label: limit.records for label, limit in known.items()}, **limited}
    labels = {slot_label(name, slot) for name, each in slots.items() for slot in each}
    return {label: wanted[label] for label in sorted(labels & wanted.keys())}


def budget_s(jobs_s: Iterable[float], straggler_s: float, limits: Limits = LIMITS) -> float | None:
    """How long a job may take before slow slots are looked for; None while that is unknown."""
    known = list(jobs_s)
    return None if len(known) < limits.straggler_jobs_min else median(known) + straggler_s


def limits_of_stragglers(
    marks: Iterable[WorkMark], plan: Plan, slots: Mapping[str, int], target_s: float
) -> dict[str, SlotLimit]:
    """Label -> limit, for the slots that hold up a job.

    `slots` is the number of slots of each computation. If more than half of them are slow, the
    computation is slow and not a slot: smaller epochs are the answer. A slot that has a limit keeps
    it.
    """
    slow: dict[str, list[WorkMark]] = {}
    for mark in marks:
        if mark.wall == plan.wall:
            slow.setdefault(mark.label.rpartition("/")[0], []).append(mark)
    found = {}
    for name, own in slow.items():
        if 2 * len(own) > slots.get(name, 0):
            continue
        for mark in own:
            if mark.label not in plan.limits:
                found[mark.label] = SlotLimit(_first_limit(mark, target_s))
    return found


def _first_limit(mark: WorkMark, target_s: float) -> int:
    """How many records fit into an epoch, by what the slot has managed; at least one."""
    # Where progress is unknown, the slot has processed less than all.
    done = mark.done or mark.records / 2
    return max(1, min(int(done * target_s / max(mark.seconds, 1e-3)), mark.records - 1))


def limits_after(
    known: Mapping[str, SlotLimit],
    reports: Iterable[Report],
    job_s: float,
    target_s: float,
    limits: Limits = LIMITS,
) -> dict[str, SlotLimit] | None:
    """The limits after an epoch; None if they do not change.

    A limit that was too low for the slot's input follows the time that the job took. Otherwise it
    stays, and goes after two periods.
    """
    if not known:
        return None
    left = {report.label: left_over(report) for report in reports if report.label in known}
    change = min(GROW, max(SHRINK, target_s / max(job_s, 1e-3)))
    found: dict[str, SlotLimit] = {}
    for label, limit in known.items():
        if left.get(label):
            found[label] = SlotLimit(max(1, round(limit.records * change)))
        elif limit.calm + 1 < 2 * limits.limit_period_epochs and label in left:
            found[label] = SlotLimit(limit.records, limit.calm + 1)
    return found


def left_over(report: Report) -> int:
    """How many records of its input a slot has not processed: it carried or dropped them."""
    carried = sum(file.rows for file in report.outbox if file.kind == CARRIED)
    return carried + report.counters.shed


def slowed(records: int, waiting: Mapping[str, int], limits: Mapping[str, SlotLimit]) -> int:
    """How many records to read, if slots have a backlog: `waiting` is label -> carried records.

    Up to four epochs' worth of waiting records nothing changes; at twice that, little is read.
    """
    limited = {label: limits[label].records for label in waiting if label in limits}
    epochs = max((waiting[label] / max(n, 1) for label, n in limited.items()), default=0.0)
    if epochs <= BACKLOG_EPOCHS:
        return records
    return max(1, int(records * max(0.0, 2 - epochs / BACKLOG_EPOCHS)))
