"""Deliberate bugs: a value means something else beside others. The cases must find each of them.

A mutation is a context manager that breaks the engine while it is entered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from headrace.model.values.kinds import from_ordered, ordered
from headrace.operators.columns import cells, forms, output, records
from headrace.operators.columns.records import Records
from headrace.operators.top import rows
from headrace.operators.windows import partials

Mutation = Callable[[], AbstractContextManager[Any]]


def old_values_are_cast() -> AbstractContextManager[Any]:
    """Values of the state are cast to the type of the newest ones, where Arrow can."""
    whole = cells.joined

    def joined(first: pa.Array, second: pa.Array) -> pa.Array:
        if not any(
            pa.types.is_list(one.type) or pa.types.is_null(one.type) for one in (first, second)
        ):
            try:
                return pa.concat_arrays([first, second.cast(first.type)])
            except pa.ArrowException:
                pass
        return whole(first, second)

    return patch.object(partials, "joined", joined)


def results_share_a_type() -> AbstractContextManager[Any]:
    """An integer beside a float, in rows of other keys, comes out as a float."""
    whole = output.typed_array

    def typed_array(values: list[Any], kinds: set[type]) -> pa.Array | None:
        if kinds == {int, float}:
            return pa.array([None if one is None else float(one) for one in values], pa.float64())
        return whole(values, kinds)

    return patch.object(output, "typed_array", typed_array)


def keys_share_a_type() -> AbstractContextManager[Any]:
    """Keys of several kinds come out as text."""
    whole = output._key_array

    def key_array(keys: Sequence[Any]) -> pa.Array | None:
        found = whole(keys)
        if found is None and not any(isinstance(key, tuple) for key in keys):
            return pa.array([None if key is None else str(key) for key in keys])
        return found

    return patch.object(output, "_key_array", key_array)


def truth_is_a_number() -> AbstractContextManager[Any]:
    """A bool beside integers is taken for one."""
    whole = cells.typed_array

    def typed_array(values: list[Any], kinds: set[type]) -> pa.Array | None:
        if kinds == {int, bool}:
            return whole([None if one is None else int(one) for one in values], {int})
        return whole(values, kinds)

    return patch.object(cells, "typed_array", typed_array)


def zeros_lose_their_sign() -> AbstractContextManager[Any]:
    """-0.0 is 0.0 beside values of other kinds, and itself beside floats."""

    def unsigned(value: Any) -> bytes:
        return ordered(0.0 if type(value) is float and value == 0 else value)

    return patch.object(cells, "ordered", unsigned)


def wide_integers_are_rounded() -> AbstractContextManager[Any]:
    """Integers of more than 64 bits become floats, in every run alike."""

    def rounded(cell: bytes) -> Any:
        value = from_ordered(cell)
        return float(value) if type(value) is int and abs(value) >= 2**64 else value

    return patch.object(cells, "from_ordered", rounded)


def all_are_refused_with_one() -> AbstractContextManager[Any]:
    """A record that cannot be taken takes its key's other records of the epoch with it."""

    def without(self: Records, refused: dict[int, Exception]) -> Records:
        bad = {int(self.key[row]) for row in refused}
        kept = np.flatnonzero(~np.isin(self.key, list(bad)))
        return Records(self.rows.take(kept), self.key[kept], self.positions[kept])

    return patch.object(records.Records, "without", without)


def forms_are_shared() -> AbstractContextManager[Any]:
    """An integer beside a float is a float for an expression."""
    whole = forms.Kinds.__init__

    def made(self: Any, given: list[Any], wide: pa.DataType | None = None) -> None:
        if set(map(type, given)) == {int, float}:
            given = [float(cell) if abs(cell) < 2**63 else cell for cell in given]
        whole(self, given, wide)

    return patch.object(forms.Kinds, "__init__", made)


def rows_get_the_columns_of_others() -> AbstractContextManager[Any]:
    """A record that a column of its epoch is missing in has null there from then on."""

    def send_dicts(ctx: Any, values: Sequence[dict[str, Any]], **options: Any) -> None:
        names = list(dict.fromkeys(name for value in values for name in value))
        filled = [{name: value.get(name) for name in names} for value in values]
        real(ctx, filled, **options)

    real = output.send_dicts
    return patch.object(rows, "send_dicts", send_dicts)


MUTATIONS: dict[str, Mutation] = {
    mutation.__name__: mutation
    for mutation in (
        old_values_are_cast, results_share_a_type, keys_share_a_type, truth_is_a_number,
        zeros_lose_their_sign, all_are_refused_with_one, forms_are_shared,
        rows_get_the_columns_of_others,
    )
}  # fmt: skip
