"""The checks of a candidate, and the request that follows from them (L2).

A candidate follows the log and writes nothing before its request. In this order:
1. contract against contract: what is refused is refused before anything else runs;
2. a sample of stored cells is decoded and migrated;
3. the last epochs run again, over an overlay, with logged answers instead of calls;
4. the request names what was compared, so that a change in between refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from headrace.engine.deploy.sample import check_cells
from headrace.engine.deploy.trial import try_epochs
from headrace.engine.driver.follower import Follower
from headrace.engine.replay.checkpoint import Checkpoint
from headrace.errors import IncompatibleState, InvalidPipeline
from headrace.log.identity import read_identity
from headrace.model.values.time import Duration, duration
from headrace.plan.deploy.code import DeployWish
from headrace.plan.deploy.comparison import (
    FORWARD,
    NOTHING_SAID,
    RESTORE,
    Comparison,
    Meant,
    compare,
)
from headrace.plan.deploy.handover import facts_of
from headrace.plan.deploy.settings import CONFIRM_AFTER, PROBATION_S
from headrace.plan.state.choice import refuse_other_state
from headrace.store.location import no_checkpoint

CONFIRM_AFTER_MAX = 10_000
PROBATION_S_MIN = 1.0
EXPIRES_S = 600.0
TRIED_EPOCHS = 3


class DeployOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a deploy is carried out."""

    confirm_after: int = CONFIRM_AFTER
    """In which of its commits the deploy is confirmed."""
    probation_s: float = PROBATION_S
    """How long the guard waits for a sign of progress."""
    expires_s: float = EXPIRES_S
    """How long the leader may look for a commit at which it can hand over."""
    check_all: bool = False
    """Whether all cells are read before, and not a sample."""
    tried_epochs: int = TRIED_EPOCHS
    meant: Meant = NOTHING_SAID


def deploy_options(
    confirm_after: int,
    probation: Duration,
    check: str,
    mode: str,
    rekeyed: Mapping[str, str],
    calls: str,
    moved: Sequence[str],
) -> DeployOptions:
    """The options as users give them, checked."""
    if type(confirm_after) is not int or not 1 <= confirm_after <= CONFIRM_AFTER_MAX:
        raise InvalidPipeline(
            f"confirm_after= is a number of epochs from 1 to {CONFIRM_AFTER_MAX}, not "
            f"{confirm_after!r}"
        )
    seconds = duration(probation, what="probation=") / 1e6
    if seconds < PROBATION_S_MIN:
        raise InvalidPipeline(f"probation= is at least {PROBATION_S_MIN:.0f} s, not {probation!r}")
    if check not in ("sample", "all"):
        raise InvalidPipeline(f'check= is "sample" or "all", not {check!r}')
    if mode not in ("", FORWARD, RESTORE):
        raise InvalidPipeline(f'mode= is "forward" or "restore", not {mode!r}')
    if calls not in ("", "stay"):
        raise InvalidPipeline(f'calls= is "stay", not {calls!r}')
    for name, what in rekeyed.items():
        if what != "drop":
            raise InvalidPipeline(f'rekeyed= maps a computation to "drop", not {name} to {what!r}')
    meant = Meant(dict(rekeyed), calls, frozenset(moved), mode)
    return DeployOptions(
        confirm_after=confirm_after, probation_s=seconds, check_all=check == "all", meant=meant
    )


def prepare(
    follower: Follower, options: DeployOptions, tell: Callable[[str, str], None] | None = None
) -> DeployWish:
    """Checks the new code against the running one; IncompatibleState if it may not take over."""
    tell = tell or follower.listeners.notice
    found = compared(follower, options.meant)
    for text in found.doubts:
        tell("doubt", text)
    if found.refusals:
        raise IncompatibleState(_refused(found.refusals))
    former = {new: old for old, new in found.renamed.items()}
    dropped = tuple(sorted(n for n, what in options.meant.rekeyed.items() if what == "drop"))
    setup = follower.setup
    refuse_other_state(follower.ledger, setup.options.state, follower.store.where())
    checkpoint = Checkpoint(follower.store, opens=setup.opens)
    kept = {name for name in checkpoint.computations if name not in dropped}
    read = check_cells(follower.topology, checkpoint, former, every=options.check_all)
    if kept:
        keys = ", ".join(f"{count} keys of {name}" for name, count in read.items()) or "no state"
        tell("deploy", f"deploy: the new code has read {keys}")
    for text in try_epochs(follower, former, options.tried_epochs):
        tell("deploy", f"deploy: {text}")
    tell("deploy", _summary(found))
    follower.follow()
    return _wish(follower, found, options, dropped)


def compared(follower: Follower, meant: Meant) -> Comparison:
    """The comparison of this code with the code in force."""
    if read_identity(follower.store) is None:
        raise no_checkpoint(follower.store)
    follower.follow()
    code = follower.ledger.code
    if code.contract is None:
        raise IncompatibleState(
            f"{follower.store.where()} does not say which code is in force: start the pipeline "
            "once with headrace run"
        )
    if code.fingerprint == follower.setup.fingerprint and code.probation is None:
        raise IncompatibleState(f"this code ({code.fingerprint}) is in force already")
    if (found := code.probation) is not None:
        raise IncompatibleState(
            f"a deploy is on probation since epoch {found.epoch}: deploy again when it is "
            "confirmed or taken back"
        )
    return compare(code.contract, follower.contract, facts_of(follower.ledger), meant)


def _refused(refusals: Sequence[str]) -> str:
    if len(refusals) == 1:
        return f"the deploy is refused: {refusals[0]}"
    lines = "\n".join(f"  {number}. {text}" for number, text in enumerate(refusals, 1))
    return f"the deploy is refused, for {len(refusals)} reasons:\n{lines}"


def _summary(found: Comparison) -> str:
    changes = [f"new: {', '.join(found.added)}"] * bool(found.added)
    changes += [f"removed: {', '.join(found.removed)}"] * bool(found.removed)
    changes += [f"{old} becomes {new}" for old, new in found.renamed.items()]
    why = f" ({found.reasons[0]})" if found.reasons else ""
    return f"deploy: mode {found.mode}{why}" + "".join(f"; {text}" for text in changes)


def _wish(
    follower: Follower, found: Comparison, options: DeployOptions, dropped: tuple[str, ...]
) -> DeployWish:
    topology, setup = follower.topology, follower.setup
    known = follower.ledger.code.contract
    names = {*(known.computations if known is not None else ()), *found.renamed.values()}
    former = {new: old for old, new in found.renamed.items()}
    return DeployWish(
        candidate=follower.store.system.token_hex(8),
        fingerprint=setup.fingerprint,
        contract=follower.contract,
        mode=found.mode,
        expects=follower.ledger.code.fingerprint,
        confirm_after=options.confirm_after,
        seconds=options.probation_s,
        expires=setup.clock() + int(options.expires_s * 1e6),
        drain=found.drain,
        dropped=dropped,
        feeds={
            name: tuple(former.get(host, host) for host in topology.feeders(node))
            for name, node in topology.keyed.items()
            if name not in names
        },
    )
