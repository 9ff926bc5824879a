"""A flipped byte anywhere in a checkpoint is found, with an error that names the file, or harmless.

Each try takes a whole checkpoint, changes one byte of one file, and then reads everything, lets a
new driver run to the end, and verifies. What comes out must be what comes out without the flip, or
an error of ours that names the damaged file; and whatever stops a reader or a driver, `verify`
finds. `make chaos` makes 1,000 tries (HEADRACE_FLIPS).
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.property.flips import checkpoints

from headrace.engine.primitives.verify import verify_checkpoint
from headrace.errors import HeadraceError
from headrace.log import blocks
from headrace.store.disk import DiskStore

TRIES = int(os.environ.get("HEADRACE_FLIPS", "24"))
FIRST = int(os.environ.get("HEADRACE_FLIPS_FIRST", "0"))


class Flipped:
    """A checkpoint as it was built, and what readers and drivers find there."""

    def __init__(self, folder: Path, *, rides: bool) -> None:
        self.rides = rides
        self.root, self.base = folder / "work", folder / "base"
        self.root.mkdir(parents=True)
        checkpoints.build(self.root, rides=rides)
        self.root.rename(self.base)
        self.fresh()
        self.names = checkpoints.files_of(self.root)
        self.seen = checkpoints.look(self.root, rides=rides)
        self.end = checkpoints.finish(self.root, rides=rides)

    def fresh(self) -> Path:
        """The checkpoint as it was built, in its place."""
        return checkpoints.copy_of(self.base, self.root)

    def flip(self, dice: random.Random) -> tuple[str, str]:
        """Changes one byte of one file; every kind of file is as likely as the others."""
        kinds = sorted({name.partition("/")[0] for name in self.names})
        kind = dice.choice(kinds)
        name = dice.choice([each for each in self.names if each.partition("/")[0] == kind])
        path = self.fresh() / "state" / name
        data = bytearray(path.read_bytes())
        # Heads and tails of files are short, and decide how the rest is read.
        place = dice.choice((dice.randrange(len(data)), dice.randrange(min(64, len(data)))))
        mask = dice.choice((1 << dice.randrange(8), dice.randrange(1, 256)))
        data[place] ^= mask
        path.write_bytes(data)
        return name, f"{name}, byte {place} of {len(data)}, mask {mask:#x}"


@pytest.fixture(scope="module", params=["files", "blocks", "riders"])
def flipped(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Flipped]:
    """With "blocks" all segments have tables, of small blocks: they are checked in parts."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "blocks":
            patch.setattr(blocks, "LARGE_BYTES", 0)
            patch.setattr(blocks, "BLOCK_BYTES", 128)
        yield Flipped(tmp_path_factory.mktemp("flips"), rides=request.param == "riders")


def test_the_checkpoint_has_every_kind_of_file(flipped: Flipped) -> None:
    kinds = {name.partition("/")[0] for name in flipped.names}
    named = {"IDENTITY", "LEASE", "control", "determinants", "log", "pins", "read", "rings"}
    assert named | {"outbox", "savepoints", "state"} <= kinds
    assert flipped.rides or "staged" in kinds
    assert flipped.end["rows"], "the sink was behind, and a driver has caught up"


@pytest.mark.timeout(24 * 3600)
def test_a_flipped_byte_is_found_or_harmless(flipped: Flipped) -> None:
    wrong = []
    for seed in range(FIRST, FIRST + max(TRIES // 3, 1)):
        name, what = flipped.flip(random.Random(seed))
        wrong += [f"seed {seed}, {what}: {each}" for each in judged(flipped, name)]
    assert not wrong, "\n".join(wrong)


def judged(flipped: Flipped, name: str) -> list[str]:
    """What is wrong after one flip, in the file of this name."""
    rides, root = flipped.rides, flipped.root
    store = DiskStore(root / "state", checkpoints.system(rides=rides))
    seen = checkpoints.outcome(lambda: checkpoints.look(root, rides=rides))
    found = checkpoints.outcome(lambda: verify_checkpoint(store))
    end = checkpoints.outcome(lambda: checkpoints.finish(root, rides=rides))
    told = complaints("a reader", seen, flipped.seen, name)
    told += complaints("a driver", end, flipped.end, name)
    if isinstance(found, Exception):
        told.append(f"verify failed: {found!r}")
    elif found.is_whole and (isinstance(seen, Exception) or isinstance(end, Exception)):
        told.append("verify has found nothing")
    return told


def complaints(who: str, found: Any, expected: Any, name: str) -> list[str]:
    """What is wrong with what somebody has found after a flip."""
    if not isinstance(found, Exception):
        return [] if found == expected else [f"{who} has found something else, without an error"]
    if not isinstance(found, HeadraceError):
        return [f"{who} failed with {found!r}"]
    if name.rpartition("/")[2] not in str(found):
        return [f"{who} got an error that does not name the file: {found}"]
    return []
