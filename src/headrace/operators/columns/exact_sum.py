"""Exact sums, rounded once at the end. They do not depend on how the input is cut.

A float is an integer times a power of two. For each group and exponent the integers are added in
numpy, in two halves to avoid overflow. The few numbers that remain per group are combined into one
Python integer with one exponent.
"""

from __future__ import annotations

import math
from decimal import Decimal
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.operators.columns.groups import Groups, group

_HALF = 27
_MANTISSA = 53

Total = tuple[int, int]
"""(number, exponent): number * 2**exponent."""

ZERO: Total = (0, 0)


def totals_of_ints(values: Any, groups: Groups) -> list[Total]:
    """The sum of each group's integers."""
    if values.dtype == object:
        return _totals_of_objects(values, groups)
    high, low = _halves(values)
    highs, lows = np.zeros(groups.count, np.int64), np.zeros(groups.count, np.int64)
    np.add.at(highs, groups.of, high)
    np.add.at(lows, groups.of, low)
    pairs = zip(highs.tolist(), lows.tolist(), strict=True)
    return [((h << 32) + low, 0) for h, low in pairs]


def unscaled(decimals: pa.Array) -> Any:
    """Decimals without their point, as integers; Python integers if 64 bits are too few."""
    wide = decimals.cast(pa.decimal256(76, decimals.type.scale))
    words = np.frombuffer(wide.buffers()[1], "<i8").reshape(-1, 4)
    words = words[wide.offset : wide.offset + len(wide)]
    if (words[:, 1:] == (words[:, :1] >> 63)).all():
        return words[:, 0].copy()
    scale = decimals.type.scale
    found = [whole(cell) for cell in decimals.to_pylist()]
    return np.array([number * 10 ** (scale - own) for number, own in found], object)


def whole(decimal: Decimal) -> tuple[int, int]:
    """A finite decimal without its point, and the number of digits after the point."""
    sign, digits, exponent = decimal.as_tuple()
    number = int("".join(map(str, digits))) * (-1 if sign else 1)
    power = int(exponent)
    return (number * 10**power, 0) if power > 0 else (number, -power)


def _totals_of_objects(values: Any, groups: Groups) -> list[Total]:
    found = [0] * groups.count
    for owner, value in zip(groups.of.tolist(), values.tolist(), strict=True):
        found[owner] += value
    return [(number, 0) for number in found]


def _halves(values: Any) -> tuple[Any, Any]:
    """The upper 32 bits, with the sign of a signed integer, and the lower 32 bits."""
    low = values & values.dtype.type(0xFFFFFFFF)
    return (values >> values.dtype.type(32)).astype(np.int64), low.astype(np.int64)


def totals_of_floats(values: Any, groups: Groups) -> list[Total]:
    """The sum of each group's finite floats."""
    mantissas, exponents = _taken_apart(values)
    return _by_exponent([(mantissas, 0)], exponents, groups)


def squares_of_ints(values: Any, groups: Groups) -> list[Total]:
    """The sum of the squares of each group's integers."""
    if values.dtype == object:
        return _totals_of_objects(values * values, groups)
    high, low = _halves(values)
    # (h * 2**32 + l)**2, with every factor below 2**32 and h signed.
    totals = [ZERO] * groups.count
    for left, right, shift in ((high, high, 64), (high, low, 33), (low, low, 0)):
        for a, a_shift in ((left >> 16, 16), (left & 0xFFFF, 0)):
            part = totals_of_ints(a * right, groups)
            totals = [
                add(total, (number << (shift + a_shift), 0))
                for total, (number, _) in zip(totals, part, strict=True)
            ]
    return totals


def squares_of_floats(values: Any, groups: Groups) -> list[Total]:
    """The sum of the squares of each group's finite floats."""
    mantissas, exponents = _taken_apart(values)
    high, low = mantissas >> _HALF, mantissas & ((1 << _HALF) - 1)
    terms = [(high * high, 2 * _HALF), (2 * high * low, _HALF), (low * low, 0)]
    return _by_exponent(terms, 2 * exponents, groups)


def _taken_apart(values: Any) -> tuple[Any, Any]:
    fractions, exponents = np.frexp(values)
    mantissas = np.ldexp(fractions, _MANTISSA).astype(np.int64)
    return mantissas, exponents.astype(np.int64) - _MANTISSA


def _by_exponent(terms: list[tuple[Any, int]], exponents: Any, groups: Groups) -> list[Total]:
    totals = [ZERO] * groups.count
    if not len(exponents):
        return totals
    cells = group([groups.of, exponents])
    one = cells.one_row()
    owners, powers = groups.of[one].tolist(), exponents[one].tolist()
    numbers = [0] * cells.count
    for mantissas, shift in terms:
        for i, (number, _) in enumerate(totals_of_ints(mantissas, cells)):
            numbers[i] += number << shift
    for owner, power, number in zip(owners, powers, numbers, strict=True):
        totals[owner] = add(totals[owner], (number, power))
    return totals


def add(a: Total, b: Total) -> Total:
    """The sum of two totals."""
    if not a[0]:
        return b
    if not b[0]:
        return a
    power = min(a[1], b[1])
    return (a[0] << (a[1] - power)) + (b[0] << (b[1] - power)), power


def merged(numbers: pa.Array, powers: pa.Array, groups: Groups, tens: Any = None) -> list[Total]:
    """Adds stored totals per group, each multiplied by its power of ten."""
    totals = [ZERO] * groups.count
    moved = repeat(0) if tens is None else tens.tolist()
    for owner, data, power, ten in zip(
        groups.of.tolist(), numbers.to_pylist(), powers.to_pylist(), moved, strict=False
    ):
        number = int.from_bytes(data, "big", signed=True)
        totals[owner] = add(totals[owner], (number * 10**ten if ten else number, power))
    return totals


def stored(totals: list[Total]) -> tuple[pa.Array, pa.Array]:
    """Totals as two columns, each in its shortest form, so that equal sums have equal bytes."""
    numbers, powers = [], []
    for number, power in totals:
        if number:
            zeros = (number & -number).bit_length() - 1
            number, power = number >> zeros, power + zeros
        else:
            power = 0
        numbers.append(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))
        powers.append(power)
    return pa.array(numbers, pa.binary()), pa.array(powers, pa.int64())


def ratio(total: Total, divisor: int = 1) -> float:
    """total / divisor as the nearest float."""
    number, power = total
    try:
        return (number << power) / divisor if power >= 0 else number / (divisor << -power)
    except OverflowError:
        return -math.inf if number < 0 else math.inf  # `number` itself may be too large


def root(total: Total, divisor: int) -> float:
    """The square root of total / divisor, even if the quotient itself does not fit a float."""
    number, power = total
    half = (number.bit_length() + power - divisor.bit_length()) // 2
    try:
        return math.ldexp(math.sqrt(ratio((number, power - 2 * half), divisor)), half)
    except OverflowError:
        return math.inf
