"""Notes on their way to the driver: a directory of the executor, beside its local copies (K2).

Rows of the last level go straight to the driver; all others are shuffled, and no shuffled row may
contain what differs between attempts (B4). So tasks of lower levels leave their notes in files
here, and tasks of the last level take along what they find. Levels are barriers, so the files are
there by then. An executor without a task of the last level keeps them until it has one.

A note may be lost, or taken by two tasks at once: nothing but later decisions depends on it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence

import msgspec
import xxhash

from headrace.engine.spark.segment_copies import near_directory
from headrace.plan.elastic.load import SlotNote

FILES_MAX = 256
"""How many files one task takes along; a flood of notes must not delay an epoch."""

_decoder = msgspec.msgpack.Decoder(list[SlotNote])


def leave_notes(checkpoint: str, notes: Sequence[SlotNote]) -> None:
    """Leaves notes for a task of the last level; a full or failing disk must not fail the task."""
    if not notes:
        return
    directory = _directory(checkpoint)
    name = secrets.token_hex(8)
    try:
        os.makedirs(directory, exist_ok=True)
        path = os.path.join(directory, name)
        with open(f"{path}.part", "wb") as file:
            file.write(msgspec.msgpack.encode(notes))
        os.replace(f"{path}.part", f"{path}.note")
    except OSError:
        pass


def collect_notes(checkpoint: str) -> list[SlotNote]:
    """Takes along the notes that tasks of lower levels have left on this executor."""
    directory = _directory(checkpoint)
    found: list[SlotNote] = []
    try:
        names = [name for name in os.listdir(directory) if name.endswith(".note")]
    except OSError:
        return []
    for name in names[:FILES_MAX]:
        path = os.path.join(directory, name)
        try:
            with open(path, "rb") as file:
                data = file.read()
            os.unlink(path)
            found += _decoder.decode(data)
        except (OSError, msgspec.DecodeError):
            continue  # another task has taken it
    return found


def _directory(checkpoint: str) -> str:
    """Of one checkpoint: labels of another pipeline on this executor may be the same."""
    return os.path.join(near_directory(), "notes", xxhash.xxh3_64_hexdigest(checkpoint.encode()))
