"""`Auction`: the streams that queries ask: people, auctions and bids.

They come from one stream of events, or each from a source of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pyarrow.compute as pc

from headrace import Pipeline, Stream
from headrace.model.source import Source
from headrace.workloads.nexmark.events.columns import (
    AUCTION,
    BID,
    COLUMNS_OF,
    EVENT_COLUMNS,
    PERSON,
)


class Auction:
    """The input of a query, as streams of one pipeline."""

    side_input: Any = None
    """The bounded table of query 13, with `key` and `value`; None for the generated one."""

    def __init__(self, pipeline: Pipeline, streams: Mapping[str, Stream[Any]]) -> None:
        """`streams`: of each kind of event that the query asks for, by the kind."""
        self.pipeline = pipeline
        self._streams = dict(streams)

    @classmethod
    def of_events(cls, pipeline: Pipeline, events: Stream[Any]) -> Auction:
        """From one stream of events, with the columns `EVENT_COLUMNS`."""
        return _OfEvents(pipeline, events)

    @classmethod
    def of_sources(cls, pipeline: Pipeline, **sources: Source) -> Auction:
        """From a source for each kind: `of_sources(p, bid=..., auction=...)`."""
        streams = {
            kind: pipeline.read(f"{kind}s", source, schema=COLUMNS_OF[kind])
            for kind, source in sources.items()
        }
        return cls(pipeline, streams)

    @cached_property
    def people(self) -> Stream[Any]:
        """People, when they register."""
        return self._stream(PERSON)

    @cached_property
    def auctions(self) -> Stream[Any]:
        """Auctions, when they open."""
        return self._stream(AUCTION)

    @cached_property
    def bids(self) -> Stream[Any]:
        """Bids."""
        return self._stream(BID)

    def _stream(self, kind: str) -> Stream[Any]:
        return self._streams[kind]


class _OfEvents(Auction):
    def __init__(self, pipeline: Pipeline, events: Stream[Any]) -> None:
        super().__init__(pipeline, {})
        self._events = events

    def _stream(self, kind: str) -> Stream[Any]:
        # A stream of its own for each kind that is asked for: the others are dropped at once.
        chosen = self._events.filter(pc.field("kind") == kind).named(f"all {kind}s")
        return chosen.select(*COLUMNS_OF[kind].names).named(f"{kind}s")


def read_events(pipeline: Pipeline, source: Source) -> Stream[Any]:
    """Reads a source of events that have the columns `EVENT_COLUMNS` already."""
    return pipeline.read("events", source, schema=EVENT_COLUMNS)
