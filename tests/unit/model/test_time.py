"""Durations have units, instants have zones, and both fit 64 bits."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from headrace.model.values.time import DAY, END, HOUR, MINUTE, SECOND, duration, instant


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("250ms", 250_000),
        ("10s", 10 * SECOND),
        ("1h30m", HOUR + 30 * MINUTE),
        ("7d", 7 * DAY),
        ("1.5s", 1_500_000),
        ("0s", 0),
        (timedelta(minutes=2), 2 * MINUTE),
    ],
)
def test_a_duration_is_text_with_a_unit_or_a_timedelta(text, micros):
    assert duration(text) == micros


@pytest.mark.parametrize("bare", [5, 0.5, None])
def test_a_bare_number_is_no_duration(bare):
    with pytest.raises(TypeError, match="needs a unit"):
        duration(bare)


@pytest.mark.parametrize("wrong", ["", "5", "5 s", "s", "-5s", "5s!", "1y", timedelta(seconds=-1)])
def test_a_malformed_duration_is_refused(wrong):
    with pytest.raises(ValueError):
        duration(wrong)


def test_an_instant_is_an_int_or_an_aware_datetime():
    assert instant(5) == 5
    assert instant(np.int64(5)) == 5 and type(instant(np.int64(5))) is int
    assert instant(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == SECOND
    east = timezone(timedelta(hours=2))
    assert instant(datetime(1970, 1, 1, 2, 0, 1, tzinfo=east)) == SECOND


def test_microseconds_of_distant_years_are_exact():
    far = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert instant(far) == 253_402_300_799_999_999
    assert duration(timedelta(days=110_000, microseconds=1)) == 110_000 * 86_400 * SECOND + 1


@pytest.mark.parametrize("wrong", [datetime(2024, 1, 1), True, 1.5, "2024-01-01", None])
def test_a_naive_datetime_or_another_type_is_no_instant(wrong):
    with pytest.raises(TypeError):
        instant(wrong)


@pytest.mark.parametrize("wrong", [END + 1, -END - 2, 10**30])
def test_an_instant_fits_64_bits(wrong):
    with pytest.raises(ValueError, match="64 bits"):
        instant(wrong)
