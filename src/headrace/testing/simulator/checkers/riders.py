"""Checks what rides in entries of the log (protocol M1): the bytes of small files.

It shares no code with the engine: it reads entries as text and bytes.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import xxhash


class WrongRiders(Exception):
    """An entry and its riders do not fit together."""


def read_entry(position: int, data: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """An entry of the log, and its riders."""
    _, text, tail = data.split(b"\n", 2)
    entry: dict[str, Any] = json.loads(text)
    if "tail_bytes" in entry:
        tail = pa.decompress(tail, entry["tail_bytes"], "zstd", asbytes=True)
    riders: dict[str, bytes] = {}
    for name, (offset, length) in entry.get("riders", {}).items():
        found = riders[name] = tail[offset : offset + length]
        if xxhash.xxh3_128_hexdigest(found) not in name:
            raise WrongRiders(
                f"log position {position}: the bytes of {name} are not those it names"
            )
    if sum(map(len, riders.values())) != len(tail):
        raise WrongRiders(f"log position {position} has a tail that its riders do not fill")
    return entry, riders


class Riders:
    """Which files ride in which entry, and their bytes."""

    def __init__(self) -> None:
        self.positions: dict[str, int] = {}
        self.bytes: dict[str, bytes] = {}

    def entry(self, position: int, entry: dict[str, Any], riders: dict[str, bytes]) -> None:
        """Notes the riders of an entry, which must be those that its commit says."""
        body: dict[str, Any] = entry["body"]
        expected = _named(body["commit"]) if entry["kind"] == "commit" else set()
        if entry["kind"] == "checkpoint":
            expected = {made["entry"]["segment"] for made in body["adoptions"] if made["rides"]}
        if set(riders) != expected:
            differing = sorted(set(riders) ^ expected)
            raise WrongRiders(f"log position {position} and its commit differ on {differing}")
        self.positions.update(dict.fromkeys(riders, position))
        self.bytes.update(riders)

    def in_file(self, name: str) -> list[str]:
        """What rides in the file of the checkpoint that has this name."""
        if not (name.startswith("log/") and name[-20:].isdigit()):
            return []
        return [rider for rider, position in self.positions.items() if position == int(name[-20:])]


def _named(commit: dict[str, Any]) -> set[str]:
    """The files that ride in a commit, as it says itself."""
    deltas = (delta for slots in commit["deltas"].values() for delta in slots.values())
    found = {delta["segment"] for delta in deltas if delta["rides"]}
    found |= {made["entry"]["segment"] for made in commit["adoptions"] if made["rides"]}
    found |= {f"outbox/{file['name']}" for file in commit["outbox"] if file["rides"]}
    return found | {
        f"staged/{file['sink']}/{file['name']}" for file in commit["staged"] if file["rides"]
    }
