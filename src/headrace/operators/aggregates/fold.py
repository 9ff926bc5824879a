"""`fold`: an aggregate of user functions.

An error affects as little as possible. If a function raises for a record, that record is refused.
If it raises for two accumulators or for a result, that key and window have no row. Other keys and
windows are not affected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from headrace.model.values.codec import decode_value, packed
from headrace.model.values.extensions import from_extension, wide
from headrace.model.values.shown import shown
from headrace.operators.aggregates.aggregate import Aggregate, Failed, Parts, Unfinished
from headrace.operators.columns.cells import Form
from headrace.operators.columns.groups import Groups
from headrace.operators.columns.records import Records, Refused

_KINDS = (tuple, set, frozenset)
_deterministic = msgspec.msgpack.Encoder(order="deterministic")

BROKEN = b"\xc1"
"""An accumulator that could not be merged: a byte that MessagePack does not use."""


@dataclass(frozen=True)
class Fold(Aggregate):
    """User functions: `add` per record, `merge` of two states, `result` at the end.

    They run as Python code per record. They must be associative and must not depend on order.
    """

    zero: Any = None
    add: Callable[[Any, Any], Any] | None = None
    join: Callable[[Any, Any], Any] | None = None
    result: Callable[[Any], Any] | None = None

    forms: ClassVar[tuple[Form, ...]] = ("bytes",)

    def start(self, records: Records, groups: Groups) -> Parts:
        values = records.rows.values() if self.column is None else records.raw(self.column)
        zero = self._zero()
        found: list[Any] = [None] * groups.count
        broken: set[int] = set()
        for owner, value in zip(groups.of.tolist(), values, strict=True):
            if value is None or owner in broken:
                continue
            try:
                before = self._decode(zero) if found[owner] is None else found[owner]
                found[owner] = self._added(before, value)
            except Exception:
                broken.add(owner)
        cells: list[bytes | None] = []
        for owner, state in enumerate(found):
            try:
                cells.append(None if owner in broken else self._stored(state))
            except Exception:
                broken.add(owner)
        if broken:
            raise Refused(self._guilty(records, groups, broken))
        return [pa.array(cells, pa.binary())]

    def _guilty(self, records: Records, groups: Groups, broken: set[int]) -> dict[int, Exception]:
        """The records for which `add` fails. Each is tried with the state before it.

        `add` may have changed a state or a value before it raised, so both are created again.
        """
        values = records.rows.values() if self.column is None else records.raw(self.column)
        states: dict[int, bytes] = {}
        guilty: dict[int, Exception] = {}
        for row, (owner, value) in enumerate(zip(groups.of.tolist(), values, strict=True)):
            if value is None or owner not in broken:
                continue
            try:
                state = self._added(self._decode(states.get(owner, self._zero())), value)
                states[owner] = self._stored(state) or self._zero()
            except Exception as error:
                guilty[row] = error
        return guilty

    def _added(self, before: Any, value: Any) -> Any:
        after = self.add(before, value)  # type: ignore[misc]
        if after is None and self.zero is not None:
            raise TypeError("fold: add returned None; it returns the new state")
        return after

    def merge(self, parts: Parts, groups: Groups, failed: Failed) -> Parts:
        found: list[Any] = [None] * groups.count
        cells: list[bytes | None] = [None] * groups.count
        for owner, data in zip(groups.of.tolist(), parts[0].to_pylist(), strict=True):
            if data is None or cells[owner] == BROKEN:
                continue
            if data == BROKEN:
                cells[owner] = BROKEN
                continue
            try:
                value = self._decode(data)
                if found[owner] is not None:
                    value = self.join(found[owner], value)  # type: ignore[misc]
                    if value is None and self.zero is not None:
                        raise TypeError("fold: merge returned None; it returns the new state")
                found[owner] = value
            except Exception as error:
                failed(owner, error)
                cells[owner] = BROKEN
        for owner, state in enumerate(found):
            if cells[owner] is None:
                try:
                    cells[owner] = self._stored(state)
                except Exception as error:
                    failed(owner, error)
                    cells[owner] = BROKEN
        return [pa.array(cells, pa.binary())]

    def finish(self, parts: Parts) -> pa.Array | list[Any]:
        return [self._finished(data) for data in parts[0].to_pylist()]

    def _finished(self, data: bytes | None) -> Any:
        if data == BROKEN:
            return Unfinished(None)
        try:
            value = self._decode(self._zero() if data is None else data)
            found = self.result(value) if self.result else value
            # In the form in which it is sent: sets as lists, objects as dicts.
            return decode_value(packed(found, what="fold: a result"))
        except Exception as error:
            return Unfinished(error)

    def _zero(self) -> bytes:
        return _encoded(self.zero)

    def _decode(self, data: bytes) -> Any:
        """Decodes a state to the type of `zero`, if the encoding does not keep the type."""
        kind = type(self.zero)
        if kind in _KINDS or issubclass(kind, msgspec.Struct) or is_dataclass(kind):
            return msgspec.msgpack.decode(data, type=kind, ext_hook=from_extension)
        return decode_value(data)

    def _stored(self, state: Any) -> bytes | None:
        data = None if state is None else _encoded(state)
        if data is not None and (back := self._decode(data)) != state and state == state:
            raise TypeError(
                f"fold: the state {shown(state, 80)} would come back as {shown(back, 80)}: "
                "use lists instead of tuples inside it, and text for keys"
            )
        return data


def _encoded(state: Any) -> bytes:
    try:
        return _deterministic.encode(state)
    except OverflowError:  # integers of more than 64 bits
        return _deterministic.encode(wide(state))
