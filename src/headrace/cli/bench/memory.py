"""`headrace bench memory` and `headrace bench eviction`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from headrace.cli.bench.options import json_file_option, number, say, tell, work_dir_option


@click.command(
    epilog="""\b
Examples:
  headrace bench memory --json out/memory.json
  headrace bench memory --state-mb 500 --peak-mb 200"""
)
@number("--state-mb", 5_000, "How large the state is.")
@number("--payload", 4_000, "Bytes of each key's state, and of each waiting record.")
@number("--epoch-records", 2_000, "Records per epoch.")
@number("--peak-mb", 1_000, "How much memory (RssAnon) a process may take.")
@work_dir_option
@json_file_option
def memory(work_dir: Path | None, json_file: Path | None, **size: Any) -> None:
    """Run a pipeline whose state, timers and waiting records do not fit into its memory."""
    from headrace.bench.memory.measure import MemorySize, format_memory, run_memory

    document = run_memory(MemorySize(**size), work_dir=work_dir, say=say)
    wrong = "the state is too small, or timers and waiting records were lost or repeated"
    tell(document, format_memory(document), json_file, wrong=wrong)


@click.command(
    epilog="""\b
Examples:
  headrace bench eviction --json out/eviction.json
  headrace bench eviction --records 50000"""
)
@number("--records", 200_000, "Records of each pipeline.")
@number("--epoch-records", 2_000, "Records per epoch.")
@number("--seed", 1, "Seed of the input.", least=0)
@json_file_option
def eviction(json_file: Path | None, **work: Any) -> None:
    """Compare which objects stay in memory: Headrace, plain LRU, and the best that is possible."""
    from headrace.bench.memory.eviction import EvictionWork, format_eviction, run_eviction

    document = run_eviction(EvictionWork(**work), say=say)
    tell(document, format_eviction(document), json_file, wrong="nothing was measured")
