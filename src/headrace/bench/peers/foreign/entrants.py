"""Who takes part in a benchmark: of foreign peers, those that this machine can have."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.bench.frame.rounds import Contender, Say
from headrace.bench.frame.system import FOREIGN, check_names
from headrace.bench.peers.foreign.environments import missing
from headrace.bench.peers.foreign.system import lighter
from headrace.bench.workload import CountWorkload


def contenders_of(
    names: Sequence[str], workload: CountWorkload, say: Say
) -> tuple[list[Contender], dict[str, str]]:
    """The systems to measure, and peer -> reason for those that cannot be installed here."""
    check_names(list(names))
    foreign = [name for name in names if name in FOREIGN]
    if foreign:
        say(f"making the environments of {', '.join(foreign)} (minutes, the first time)")
    unavailable = missing(foreign)
    for name, reason in unavailable.items():
        say(f"{name} is not measured: {reason}")
    return [
        Contender(name, name, lighter(name, workload)) for name in names if name not in unavailable
    ], unavailable
