"""`headrace bench keyed-count`: decides what to run and makes the document.

Everything that one document compares is measured in one run, in the same rounds:
the systems themselves, the bare Spark job beside a trivial pipeline of ours, and
our own run with little state beside the one with much.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.bench.frame.bars import STATE_KEYS_FEW
from headrace.bench.frame.machine import describe_machine, describe_versions
from headrace.bench.frame.result import Measured, build_document
from headrace.bench.frame.rounds import Contender, Launch, Say, run_rounds
from headrace.bench.frame.runner import SystemOutcome
from headrace.bench.frame.system import BARE, BARE_ONE_STAGE, OURS, OURS_TRIVIAL
from headrace.bench.peers.foreign.entrants import contenders_of
from headrace.bench.workload import CountWorkload

STATE_FEW_LABEL = f"{OURS}-{STATE_KEYS_FEW}-keys"


def run_keyed_count(
    workload: CountWorkload,
    peers: Sequence[str],
    *,
    ours: bool = True,
    rounds: int = 1,
    floor: bool = False,
    work_dir: Path | None = None,
    launch: Launch | None = None,
    say: Say = lambda line: None,
) -> dict[str, Any]:
    """Measure Headrace and its peers side by side and return the JSON document.

    `floor` adds the bare Spark jobs and our trivial pipeline. A workload with more
    than `STATE_KEYS_FEW` keys in state adds our run with only that many. `ours`
    off measures the peers alone. `work_dir` holds input and checkpoints, and is a
    temporary directory unless given.
    """
    systems, unavailable = contenders_of(_entrants(peers, ours), workload, say)
    floors = _floor_entries(workload, ours) if floor else []
    few = []
    if ours and workload.state_keys > STATE_KEYS_FEW:
        few = [Contender(STATE_FEW_LABEL, OURS, replace(workload, state_keys=STATE_KEYS_FEW))]
    machine = describe_machine()
    with tempfile.TemporaryDirectory(
        prefix="headrace-bench-", dir=work_dir, ignore_cleanup_errors=True
    ) as directory:
        outcomes = run_rounds(
            [*systems, *few, *floors], rounds, Path(directory), launch=launch, say=say
        )
    measured = Measured(
        workload=workload,
        systems=_of(outcomes, systems),
        floor=_of(outcomes, floors),
        state_few=_of(outcomes, few),
        unavailable=unavailable,
    )
    return build_document(measured, machine, describe_versions())


def _entrants(peers: Sequence[str], ours: bool) -> list[str]:
    """Ours first, then each peer once, in the order asked for."""
    return list(dict.fromkeys([*([OURS] if ours else []), *peers]))


def _floor_entries(workload: CountWorkload, ours: bool) -> list[Contender]:
    """The bare jobs, and a pipeline that does next to nothing: one record per slot."""
    trivial = replace(workload, records=workload.slots, keys=workload.slots, state_keys=0)
    names = [BARE, BARE_ONE_STAGE, *([OURS_TRIVIAL] if ours else [])]
    return [Contender(name, name, trivial) for name in names]


def _of(
    outcomes: Mapping[str, list[SystemOutcome]], contenders: Sequence[Contender]
) -> dict[str, list[SystemOutcome]]:
    return {each.label: outcomes[each.label] for each in contenders}
