"""Numbers of the engine that users never set: how often, how many, how long.

They are fields of one struct, so that tests and the simulator pass smaller ones and meet in a
run of a few epochs what else takes days. All who work on one checkpoint must agree on those
that decide where its files lie (`log_directory_entries`, `closed_span_epochs`).
"""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """The defaults are those of every run."""

    # The log
    log_directory_entries: int = 1000
    """How many entries share a directory, which is trimmed as a whole."""
    log_puts_max: int = 8
    """How often a put is repeated quickly before the run waits for the store, and says so."""
    snapshot_every_epochs: int = 32
    """A commit with a snapshot is large; between two, recovery folds single commits."""
    collect_every_epochs: int = 16
    """Collection lists every directory of the checkpoint."""
    leftover_age_s: float = 3600.0
    """A half-written file this old has no writer any more."""

    # State
    merge_segments_min: int = 8
    """Merge when this many segments of like size have piled up."""
    merge_piece_bytes: int = 256 << 20
    """About how much of a run is merged at once: its memory lies in the driver's process."""
    merge_sample_bytes: int = 1 << 20
    """One key hash per this many bytes is sampled, to cut a run into pieces of like size."""
    merge_retry_epochs: int = 32
    """How long a slot is left alone after its merge failed; twice as long the next time."""
    chains_kept: int = 16
    """A worker's cache this many epochs behind can still be brought up to date."""
    timers_per_key_max: int = 100_000
    """A key whose timers set more due timers than this in one epoch sets them in a loop."""

    # Input and its end
    sealed_rows_min: int = 256
    """This many finished splits wait in the ledger; then they leave it, in one file."""
    final_rounds_max: int = 1000
    """A loop that has not drained after this many final epochs never will."""

    # Calls to the outside
    determinants_epochs: int = 16
    """How many epochs log their calls in one directory, at least."""
    closed_span_epochs: int = 1 << 16
    """How many epochs share a marker when all their directories are closed."""

    # Sinks
    high_water_markers_kept: int = 16
    """A directory read while names come and go may miss one of them."""
    open_files_max: int = 64
    """How many files of an epoch are written before they are synced."""

    # Waiting through an outage
    retry_quick_s: float = 0.1
    """The first pause; it doubles with each of the quick tries."""
    retry_slow_s: float = 2.0
    """The first pause after the quick tries."""
    retry_slowest_s: float = 30.0
    """No pause is longer, so that a run goes on soon after an outage."""


LIMITS = Limits()
