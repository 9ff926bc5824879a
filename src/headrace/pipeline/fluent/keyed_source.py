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
    """The names of the key's parts in rows that steps produce."""

    @property
    def slot_options(self) -> dict[str, Any]:
        """Options of a step: one slot, if all records have one key, as more slots would be idle."""
        return {"slots": 1} if self.key == () else {}
