"""`KeyedSource`: the stream that a keyed step reads, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.model.key_spec import KeyGiven
from headrace.pipeline.fluent.catalog import Catalog


@dataclass(frozen=True)
class KeyedSource:
    """A stream by name, and the key by which a step reads it."""

    catalog: Catalog
    name: str
    key: KeyGiven
    key_columns: tuple[str, ...]
    """What the parts of the key are called in rows that steps make."""

    @property
    def slot_options(self) -> dict[str, Any]:
        """Options of a step under one key for all records: more slots than one would be idle."""
        return {"slots": 1} if self.key == () else {}
