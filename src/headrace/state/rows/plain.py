"""Reads the rows of a plain segment, which differ only in their key and value.

Many segments are plain: all rows are versions of one field, and keys have one length, and values
have one. A look-up of a few rows in each of many segments then takes few calls: what all rows share
is known (`facts.py`), and where a key or value lies is a multiplication.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.log.blocks import BlockCheck
from headrace.state.rows.columns import Checked, Rows
from headrace.state.rows.facts import FieldFacts


class PlainFields:
    """The keys and values of a plain segment, as bytes of its file."""

    __slots__ = (
        "_key_bytes", "_keys", "_keys_checked", "_value_bytes", "_values", "_values_checked",
        "expires", "gone", "name", "version",
    )  # fmt: skip

    def __init__(
        self,
        facts: FieldFacts,
        batch: pa.RecordBatch,
        keys_check: BlockCheck | None,
        check: BlockCheck | None,
    ) -> None:
        """`facts` are those of a plain segment. What was checked already has no check."""
        (self.name,) = facts.names or ("",)
        self.expires, self.version = facts.expires or 0, facts.version or 0
        self.gone = bool(facts.tombstone)
        self._key_bytes, self._value_bytes = facts.key_bytes or 0, facts.value_bytes or 0
        keys, values = (batch.column(name).buffers()[2] for name in ("key", "value"))
        self._keys, self._values = memoryview(keys or b""), memoryview(values or b"")
        self._keys_checked = Checked.of(keys_check, keys)
        self._values_checked = Checked.of(check, values)

    def read(self, rows: Rows, owners: Rows, keys: Sequence[bytes]) -> list[tuple[int, bytes]]:
        """(owner, value) of each row that has its owner's key; owners are indexes of `keys`."""
        rows = rows.astype(np.int64, copy=False)
        width, size = self._key_bytes, self._value_bytes
        if self._keys_checked is not None:
            self._keys_checked.items(rows, width, width)
        if self._values_checked is not None:
            self._values_checked.items(rows, size, size)
        names, values = self._keys, self._values
        return [
            (owner, bytes(values[row * size : row * size + size]))
            for owner, row in zip(owners.tolist(), rows.tolist(), strict=True)
            if bytes(names[row * width : row * width + width]) == keys[owner]
        ]
