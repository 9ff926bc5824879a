"""`headrace chaos`: runs the simulator over its own workloads, with any number of seeds."""

from __future__ import annotations

import os
import time
from collections import Counter

import click

from headrace.errors import HeadraceError

_TELL_EVERY = 200


@click.command(
    epilog="""\b
Examples:
  headrace chaos --seeds 2000
  headrace chaos --seeds 1 --from 1234        the schedule of one seed, with its trace
  headrace chaos --seeds 500 --workload transfers
  headrace chaos --seeds 500 --store objects""",
)
@click.option("--seeds", default=2_000, show_default=True, help="How many schedules to run.")
@click.option("--from", "first", default=0, show_default=True, help="The first seed.")
@click.option("--workload", help="Only this one.  [default: the seed chooses]")
@click.option(
    "--store",
    type=click.Choice(["disk", "objects"]),
    help="What the checkpoint lies on: a filesystem, or an object store.  "
    "[default: the seed chooses]",
)
@click.option("--processes", type=int, help="How many at a time.  [default: one for each core]")
def chaos(
    seeds: int, first: int, workload: str | None, store: str | None, processes: int | None
) -> None:
    """Run seeded schedules of faults against the whole protocol, without Spark.

    Each seed makes tasks and drivers die, sleep and come back late, tears and loses writes, fails
    disks, sinks and the power, moves rings and clocks; lets requests to an object store land late,
    twice or without an answer; and checks every promise. A seed that finds a broken one prints its
    schedule and the command that repeats it.
    """
    # Imported here: the other verbs need not load the simulator.
    from headrace.testing.simulator.runner import COPIES, DEPLOYS, STORED, run_seeds
    from headrace.testing.simulator.workloads import WORKLOADS

    known = (*WORKLOADS, COPIES, DEPLOYS, STORED)
    if workload is not None and workload not in known:
        raise HeadraceError(f"there is no workload {workload!r}; there are: {', '.join(known)}")
    if seeds < 1:
        raise HeadraceError("--seeds is at least 1")
    began = time.monotonic()
    struck: Counter[str] = Counter()
    failed = done = 0
    count = 1 if seeds < 50 else processes or os.cpu_count() or 1
    for verdict in run_seeds(
        range(first, first + seeds), processes=count, workload=workload, face=store
    ):
        done += 1
        struck += verdict.struck
        if verdict.complaint is not None:
            failed += 1
            click.echo(str(verdict))
        elif seeds == 1:
            click.echo(f"{verdict}\n" + "\n".join(f"    {line}" for line in verdict.trace))
        if done % _TELL_EVERY == 0:
            click.echo(f"{done:,} schedules, {_pace(done, began):,.0f} a minute", err=True)
    if seeds > 1:
        faults = ", ".join(f"{kind} {count:,}" for kind, count in struck.most_common())
        click.echo(
            f"{done:,} schedules in {time.monotonic() - began:,.0f} s "
            f"({_pace(done, began):,.0f} a minute).\nFaults: {faults or 'none'}."
        )
    if failed:
        raise HeadraceError(f"{failed} of {done:,} schedules broke a promise")
    if seeds > 1:
        click.echo("Every promise was kept.")


def _pace(done: int, began: float) -> float:
    return 60 * done / max(time.monotonic() - began, 1e-9)
