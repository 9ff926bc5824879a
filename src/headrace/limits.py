"""Numbers of the engine that users never set: how often, how many, how long.

They are fields of one struct, so that tests and the simulator can pass smaller ones, and see in a
run of a few epochs what would otherwise take days. All processes that work on one checkpoint must
agree on those that decide where its files lie (`log_directory_entries`, `log_markers_together`,
`closed_span_epochs`).
"""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """The limits of a run; the defaults are used everywhere outside of tests."""

    # The log
    log_directory_entries: int = 1000
    """How many entries share a directory, which is trimmed as a whole."""
    log_markers_together: int = 100
    """The markers of so many trimmed directories, one after the other, become one."""
    log_puts_max: int = 8
    """How often a put is retried quickly before the run waits for the store, and announces that."""
    snapshot_every_epochs: int = 32
    """How often a commit carries a snapshot of the ledger, and how often one of each shard of
    manifests; recovery folds the later commits."""
    shard_slots: int = 64
    """How many slots of a computation share a shard of manifests."""
    ring_steps_max: int = 16
    """After this many changes a ring is written as a whole; or when its moves are an eighth of it,
    and more than this."""
    collect_every_epochs: int = 16
    """How often files are collected, which lists every directory of the checkpoint."""
    collect_rest_s: float = 60.0
    """How long, at least, between two collections on an object store, where requests cost."""
    status_every_s: float | None = 1.0
    """How often a leader writes down, for people, what it knows of its run; None: never."""
    status_rest_s: float = 5.0
    """The same on a store where requests cost."""
    leftover_age_s: float = 3600.0
    """An incomplete file of this age no longer has a writer."""

    # State
    merge_segments_min: int = 8
    """Merge when this many segments of similar size have accumulated."""
    merge_piece_bytes: int = 256 << 20
    """About how many bytes are merged at once, because they are held in the driver's memory."""
    merge_sample_bytes: int = 1 << 20
    """One key hash per this many bytes is sampled, to cut a merge into pieces of similar size."""
    merge_retry_epochs: int = 32
    """How long a slot is not merged after a merge failed; twice as long the next time."""
    chains_kept: int = 16
    """A worker's cache that is at most this many epochs behind can still be brought up to date."""
    ride_bytes_max: int = 32 << 10
    """Output of a unit of work up to this size rides in the commit and is not written (M1)."""
    ride_total_max: int = 4 << 20
    """About how many bytes ride in one commit, of all its units."""
    ride_entries_max: int = 256
    """A segment that rides so many entries of the log back is merged: the log is to be trimmed."""
    prefetch_bytes_min: int = 4 << 20
    """If slots that lose intervals have fewer bytes than this, a ring changes at once."""
    prefetch_bytes_max: int = 64 << 20
    """About how many bytes one task prefetches in an epoch."""
    prefetch_epochs_max: int = 4
    """For how many epochs, at most, a new ring is announced before it takes effect."""
    cached_cells_max: int = 100_000
    """About how many timers, holds and waiting records a worker process keeps in memory, of all its
    slots together. The others are found in the segments."""
    window_cells: int = 4096
    """About how many of those others are read into memory at once, the earliest first."""
    cached_bytes_max: int = 256_000_000
    """About how much memory the decoded objects of keys take in a worker process."""
    eager_bytes_max: int = 64 << 20
    """About how many bytes of objects a slot loads ahead under `recovery="eager"`."""
    kept_bytes_max: int = 16 << 20
    """How many bytes of segments that it has made itself a worker process keeps in memory."""
    timers_per_key_max: int = 100_000
    """A key whose timers set more due timers than this in one epoch is in an endless loop."""

    # State stores
    unapplied_epochs_max: int = 4
    """How many epochs may be committed and not yet applied; beyond, the next one waits (O7)."""
    purge_every_epochs: int = 64
    """How often tombstones are removed from a state store (O3)."""

    # Work orders
    order_slots_min: int = 512
    """A work order of so many slots names parts that tasks keep, and lists no slots."""
    order_parts: int = 16
    """How many parts have every slot; as many are kept."""

    # Load, and what follows from it
    report_every_epochs: int = 2
    """How often slots report their load; less often with many slots (K1)."""
    report_slots: int = 256
    """With each further set of this many slots, reports come that much more rarely."""

    # Input and its end
    sealed_rows_min: int = 256
    """When this many finished splits are in the ledger, they are moved into one file."""
    final_rounds_max: int = 1000
    """A feedback loop that has not drained after this many final epochs never will."""

    # Overload
    straggler_jobs_min: int = 3
    """So many jobs must have ended before a long one is noticed: workers take time to start."""
    limit_period_epochs: int = 8
    """A slot whose input was below its limit for two such periods has no limit any more."""

    # Calls to external systems
    determinants_epochs: int = 16
    """How many epochs, at least, log their calls in one directory."""
    closed_span_epochs: int = 1 << 16
    """How many epochs share a marker when all their directories are closed."""

    # Requests
    outcomes_kept: int = 64
    """How many decided requests the ledger remembers; their answers are kept as long."""
    listen_every_s: float = 1.0
    """How often an idle leader looks for requests."""

    # Sinks
    high_water_markers_kept: int = 16
    """How many markers are kept: a listing may miss a name while names are added and removed."""
    sink_upkeep_epochs: int = 64
    """How often a sink in a store merges its manifests and deletes files of no epoch."""
    open_files_max: int = 64
    """How many files of an epoch are written before they are synced."""

    # Retries during an outage
    retry_quick_s: float = 0.1
    """The first pause; it doubles with each quick retry."""
    retry_slow_s: float = 2.0
    """The first pause after the quick retries."""
    retry_slowest_s: float = 30.0
    """The longest pause, so that a run continues soon after an outage."""


LIMITS = Limits()
