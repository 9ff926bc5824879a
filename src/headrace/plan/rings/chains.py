"""The last chains of a slot as one text: "5:<chain> 6:<chain>", the newest last.

A chain is a digest over all deltas of a slot so far: H(chain before, delta). A driver of ten
thousand slots keeps some chains of each, extends them in every epoch, and sends them with every
work order. As one text they are one object, which is copied and encoded at once.
"""

from __future__ import annotations

import xxhash

FIRST = "0:"
"""The chains of a slot of the first ring of a computation, before its first delta."""


def next_chain(chain: str, segment: str | None) -> str:
    """The chain after a delta; a slot that changed nothing keeps its chain."""
    return chain if segment is None else xxhash.xxh3_128_hexdigest(f"{chain}\n{segment}".encode())


def only_chain(epoch: int, chain: str) -> str:
    """The chains of a slot that has one."""
    return f"{epoch}:{chain}"


def last_chain(chains: str) -> str:
    """The newest chain."""
    return chains[chains.rindex(":") + 1 :]


def last_epoch(chains: str) -> int:
    """The epoch of the newest chain."""
    return int(chains[chains.rfind(" ") + 1 : chains.rindex(":")])


def with_chain(chains: str, epoch: int, chain: str, kept: int) -> str:
    """The last `kept` chains, after a new one."""
    found = f"{chains} {epoch}:{chain}"
    surplus = found.count(" ") + 1 - (kept or 1)
    while surplus > 0:
        found = found[found.index(" ") + 1 :]
        surplus -= 1
    return found


def with_segment(chains: str, epoch: int, segment: str, kept: int) -> str:
    """The last `kept` chains, after a delta."""
    chain = next_chain(chains[chains.rindex(":") + 1 :], segment)
    return with_chain(chains, epoch, chain, kept)


def epochs_of(chains: str) -> dict[str, int]:
    """Chain -> its epoch, the newest last."""
    pairs = (each.split(":") for each in chains.split(" "))
    return {chain: int(epoch) for epoch, chain in pairs}
