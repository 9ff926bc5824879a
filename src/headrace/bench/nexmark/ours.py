"""The queries as Headrace pipelines: those of `headrace.workloads.nexmark`."""

from __future__ import annotations

from headrace import Pipeline, sinks
from headrace.sources import Source
from headrace.workloads.nexmark.registry import pipeline
from headrace.workloads.nexmark.streams import Auction, read_events


def nexmark_pipeline(query: str, source: Source, out: str) -> Pipeline:
    """The pipeline of a query that writes Parquet."""
    return pipeline(
        query, lambda p: Auction.of_events(p, read_events(p, source)), sinks.parquet(out)
    )
