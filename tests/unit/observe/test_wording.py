"""Numbers as people read them."""

import pytest

from headrace.model.values.time import DAY, END, HOUR, MILLISECOND, MINUTE, SECOND
from headrace.observe.text import show_bytes, show_lag, show_rate, show_span, show_time


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (2_000_000, "2.0 MB"), (10**16, "10000.0 TB")],
)
def test_bytes_are_shown_in_the_unit_that_suits_them(size: int, text: str) -> None:
    assert show_bytes(size) == text


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (-5, "0ms"),
        (200 * MILLISECOND, "200ms"),
        (45 * SECOND, "45s"),
        (90 * MINUTE, "1h30m"),
        (2 * HOUR, "2h"),
        (3 * DAY + 4 * HOUR + 5 * MINUTE, "3d4h"),
    ],
)
def test_a_span_is_shown_by_its_two_largest_units(micros: int, text: str) -> None:
    assert show_span(micros) == text


def test_an_instant_is_shown_to_the_second_and_the_ends_of_time_by_name() -> None:
    assert show_time(1_772_409_600 * SECOND + 123_456) == "2026-03-02T00:00:00Z"
    assert show_time(0) == "the beginning"
    assert show_time(END) == "the end"


def test_lag_is_shown_only_where_watermark_and_newest_record_are_known() -> None:
    assert show_lag(10 * SECOND, 25 * SECOND) == "15s behind"
    assert show_lag(0, 25 * SECOND) == ""
    assert show_lag(END, 25 * SECOND) == ""
    assert show_lag(10 * SECOND, 0) == ""


def test_a_rate_needs_time() -> None:
    assert show_rate(3_000, 2.0) == "1,500/s"
    assert show_rate(3_000, 0.0) == "-"
