"""The options of a run: as users give them, and as checked values."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import TypedDict

import msgspec

from headrace.errors import InvalidPipeline
from headrace.model.values.time import Duration, duration
from headrace.pipeline.graph.graph import CARRY, SHED
from headrace.plan.elastic.settings import EVEN, OFF, POLICIES, Scale, scale_of
from headrace.plan.interval.cadence import EPOCHS_MAX, Cadence
from headrace.plan.listener import EpochCallback, Listener, NoticeCallback
from headrace.plan.progress import EpochProgress, Notice
from headrace.plan.state.applied import SEGMENTS
from headrace.plan.state.choice import StateChoice, check_state, refuse_with_interval

SHORT_RECORDS_MAX = 20_000
"""Up to this many records the driver itself reads and routes an epoch: the short way."""
LOCAL_CACHE_BYTES = 10**9
"""How many bytes an executor may copy from the store to its own disk, by default."""
LAZY, EAGER = "lazy", "eager"
LEASE_S_MIN = 0.2
"""A shorter lease would lapse while a busy machine does something else."""

SECONDS_MAX = 3600.0
"""The longest interval between two checkpoints: lost state is made again from the last one."""
COMMITTED, DURABLE = "committed", "durable"
"""When sinks get an epoch (`deliver=`)."""

AnyPath = str | os.PathLike[str]

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?B)?")
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


class RunOptions(TypedDict, total=False):
    """The options of `run`, `start` and `headrace run`; `Pipeline.run` explains each."""

    until: str | None
    slots: int | None
    balance: str
    scale: Scale | str | None
    max_slots: int | None
    epoch_target: Duration
    epoch_records: int | None
    epoch_timeout: Duration | None
    straggler_after: Duration | None
    overload: str
    retain_epochs: int
    state: str
    checkpoint_every: int | str
    deliver: str
    accept_repairs: bool
    replicas: int
    local_cache: int | str
    state_cache: int | str
    recovery: str
    standby: bool
    lease: Duration
    stuck_after: Duration | None
    give_up_after: Duration | None
    accept_changed: AnyPath | Sequence[AnyPath]
    replace: bool
    confirm: bool
    supervised: bool
    listeners: Sequence[Listener]
    on_epoch: Callable[[EpochProgress], None] | None
    on_notice: Callable[[Notice], None] | None


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run, checked. The defaults here are those of a run in tests."""

    until: str | None = "end"
    slots: int | None = None
    balance: str = OFF
    """The policy by which load moves between slots: even, ring or off."""
    scale: Scale | None = None
    """When slots are added and removed; None: never."""
    max_slots: int | None = None
    """How many slots the scaler may give a computation; None: as many as there are cores."""
    epoch_target_s: float = 1.0
    epoch_records: int | None = None
    epoch_timeout_s: float | None = None
    straggler_s: float | None = None
    """How much longer than usual a job may take before slow slots are looked for; None: never."""
    overload: str = CARRY
    """What an overloaded slot does with records beyond its limit, if its computation says nothing.
    """
    retain_epochs: int = 16
    """How many commits to keep: one more than the number of epochs that can be replayed."""
    state: StateChoice = StateChoice()
    """Where fields and map entries are kept."""
    checkpoint_every: Cadence = Cadence()
    """How often state that does not ride is made durable."""
    deliver: str = COMMITTED
    """When sinks get an epoch: when it is committed, or when its state is durable."""
    accept_repairs: bool = False
    """Whether lost state may be replaced by another result than the committed one."""
    replicas: int = 0
    local_cache_bytes: int = LOCAL_CACHE_BYTES
    """How many bytes an executor may copy from the store to its own disk."""
    state_cache_bytes: int | None = None
    """How much memory the objects of keys may take in a Python worker; None: the default."""
    recovery: str = LAZY
    """What a slot loads when it comes to a process cold: nothing (lazy), or the keys that it will
    soon need (eager)."""
    standby: bool = False
    listens: bool = True
    """Whether the leader reads requests from the store."""
    lease_s: float | None = None
    """The length of the leader's lease; None: the leader has no lease."""
    stuck_s: float | None = None
    """A leader that makes no step for this long, outside of jobs, stops renewing its lease."""
    give_up_s: float | None = 0.0
    """How long to wait for an unavailable part; None: for ever."""
    accept_changed: tuple[str, ...] = ()
    """Files (or streams) that may have changed since they were read."""
    replace: bool = True
    """Whether a start may put other code in force than the log names."""
    confirm: bool = False
    """Whether a start confirms this code, if it is on probation."""
    supervised: bool = False
    """Whether a program starts it, and not a person: it changes nothing that a person decided."""
    listeners: tuple[Listener, ...] = ()
    short_records_max: int = SHORT_RECORDS_MAX
    background: bool = True
    """Whether segments are merged in a background thread."""


def check_options(given: RunOptions) -> Options:
    """The options, checked, with the defaults of `Pipeline.run`."""
    if unknown := sorted(set(given) - set(RunOptions.__annotations__)):
        known = ", ".join(RunOptions.__annotations__)
        raise TypeError(f"there is no option {unknown[0]!r} of a run; there are: {known}")
    until = given.get("until", "end")
    until = "caught_up" if until == "caught-up" else until  # as the command spells it
    if until not in ("end", "caught_up", None):
        raise InvalidPipeline(f'until= is "end", "caught_up" or None, not {until!r}')
    slots = given.get("slots")
    if slots is not None and not 1 <= slots <= 10_000:
        raise InvalidPipeline(f"slots= is a number from 1 to 10,000, not {slots!r}")
    balance = given.get("balance", EVEN)
    if balance not in POLICIES:
        raise InvalidPipeline(f'balance= is "even", "ring" or "off", not {balance!r}')
    max_slots = given.get("max_slots")
    if max_slots is not None and (type(max_slots) is not int or not 1 <= max_slots <= 10_000):
        raise InvalidPipeline(f"max_slots= is a number from 1 to 10,000, not {max_slots!r}")
    replicas = given.get("replicas", 0)
    if not 0 <= replicas <= 100:
        raise InvalidPipeline(f"replicas= is a number from 0 to 100, not {replicas!r}")
    epoch_records = given.get("epoch_records")
    if epoch_records is not None and (type(epoch_records) is not int or epoch_records < 1):
        raise InvalidPipeline(f"epoch_records= is a number from 1 on, not {epoch_records!r}")
    retain_epochs = given.get("retain_epochs", 16)
    if type(retain_epochs) is not int or retain_epochs < 1:
        raise InvalidPipeline(f"retain_epochs= is a number from 1 on, not {retain_epochs!r}")
    state, every = check_state(given.get("state", SEGMENTS)), given.get("checkpoint_every", 1)
    refuse_with_interval(state, checkpoint_every(every))
    lease = given.get("lease", "3s")
    lease_s = duration(lease, what="lease=") / 1e6
    if lease_s < LEASE_S_MIN:
        raise InvalidPipeline(f"lease= is at least {LEASE_S_MIN} s, not {lease!r}")
    epoch_target_s = duration(given.get("epoch_target", "1s"), what="epoch_target=") / 1e6
    if not epoch_target_s:
        raise InvalidPipeline("epoch_target= is longer than 0 s")
    return Options(
        until=until,
        slots=slots,
        balance=balance,
        scale=scale_of(given.get("scale", "off")),
        max_slots=max_slots,
        epoch_target_s=epoch_target_s,
        epoch_records=epoch_records,
        epoch_timeout_s=_seconds(given.get("epoch_timeout"), "epoch_timeout="),
        straggler_s=_straggler_s(given, epoch_target_s),
        overload=_overload(given),
        retain_epochs=retain_epochs + 1,  # an epoch starts from the state of the one before
        state=state,
        checkpoint_every=checkpoint_every(every),
        deliver=_deliver(given),
        accept_repairs=given.get("accept_repairs", False),
        replicas=replicas,
        local_cache_bytes=byte_size(given.get("local_cache", LOCAL_CACHE_BYTES), "local_cache="),
        state_cache_bytes=_state_cache(given),
        recovery=_recovery(given),
        standby=given.get("standby", False),
        lease_s=lease_s,
        stuck_s=_seconds(given.get("stuck_after", "10m"), "stuck_after="),
        give_up_s=_seconds(given.get("give_up_after"), "give_up_after="),
        accept_changed=_names(given.get("accept_changed", ())),
        replace=given.get("replace", True) and not given.get("supervised", False),
        confirm=given.get("confirm", False) and not given.get("supervised", False),
        supervised=given.get("supervised", False),
        listeners=_listeners(given),
    )


def _listeners(given: RunOptions) -> tuple[Listener, ...]:
    found = list(given.get("listeners", ()))
    for listener in found:
        if not isinstance(listener, Listener):
            raise InvalidPipeline(f"listeners= holds Listeners, not {listener!r}")
    if (on_epoch := given.get("on_epoch")) is not None:
        found.append(EpochCallback(on_epoch))
    if (on_notice := given.get("on_notice")) is not None:
        found.append(NoticeCallback(on_notice))
    return tuple(found)


def _straggler_s(given: RunOptions, epoch_target_s: float) -> float | None:
    """By default twice the target of an epoch."""
    if "straggler_after" not in given:
        return 2 * epoch_target_s
    return _seconds(given["straggler_after"], "straggler_after=")


def _overload(given: RunOptions) -> str:
    overload = given.get("overload", CARRY)
    if overload not in (CARRY, SHED):
        raise InvalidPipeline(
            f'overload= of a run is "carry" or "shed", not {overload!r:.80}; a priority is an '
            "option of a computation: compute(..., overload=shed(priority=...))"
        )
    return overload


def _recovery(given: RunOptions) -> str:
    recovery = given.get("recovery", LAZY)
    if recovery not in (LAZY, EAGER):
        raise InvalidPipeline(f'recovery= is "lazy" or "eager", not {recovery!r:.80}')
    return recovery


def _state_cache(given: RunOptions) -> int | None:
    if "state_cache" not in given:
        return None
    return byte_size(given["state_cache"], "state_cache=")


def checkpoint_every(given: int | str) -> Cadence:
    """How often state is made durable: a number of epochs, or a time such as "10s"."""
    if isinstance(given, str) and given.isdecimal() and len(given) < 10:
        given = int(given)
    if type(given) is int and 1 <= given <= EPOCHS_MAX:
        return Cadence(given)
    if isinstance(given, str):
        seconds = duration(given, what="checkpoint_every=") / 1e6
        if 0 < seconds <= SECONDS_MAX:
            return Cadence(None, seconds)
    raise InvalidPipeline(
        f"checkpoint_every= is a number of epochs from 1 to {EPOCHS_MAX:,}, or a time of at most "
        f"an hour such as '10s', not {given!r:.80}"
    )


def _deliver(given: RunOptions) -> str:
    deliver = given.get("deliver", COMMITTED)
    if deliver not in (COMMITTED, DURABLE):
        raise InvalidPipeline(f'deliver= is "committed" or "durable", not {deliver!r:.80}')
    return deliver


def _names(given: AnyPath | Sequence[AnyPath]) -> tuple[str, ...]:
    paths = [given] if isinstance(given, str | os.PathLike) else given
    return tuple(os.fspath(path) for path in paths)


def byte_size(given: int | str, what: str) -> int:
    """A number of bytes, given as such or with a unit: "512MB"."""
    found = _SIZE.fullmatch(str(given).strip().upper())
    if found is None or isinstance(given, bool):
        raise InvalidPipeline(f"{what} is a number of bytes, such as '512MB', not {given!r}")
    return round(float(found[1]) * _UNITS[found[2] or "B"])


def _seconds(given: Duration | None, what: str) -> float | None:
    return None if given is None else duration(given, what=what) / 1e6
