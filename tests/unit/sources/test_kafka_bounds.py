"""`start=` and `stop=` of `sources.kafka`: which words, times and offsets there are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace import sources
from headrace.errors import InvalidPipeline

pytest.importorskip("confluent_kafka")
AT = datetime(2024, 5, 1, 12, 30, tzinfo=UTC)
MICROS = 1_714_566_600_000_000


def starting(start: Any, stop: Any = None) -> Any:
    return sources.kafka("orders", servers="127.0.0.1:1", start=start, stop=stop)


@pytest.mark.parametrize(
    "given",
    [MICROS, AT, "2024-05-01T12:30Z", "2024-05-01T14:30:00+02:00", "2024-05-01 12:30+00:00"],
)
def test_a_time_is_a_number_a_datetime_or_text_with_a_zone(given: Any) -> None:
    source = starting(given, stop=given)
    assert source.start.at_us == source.stop.at_us == MICROS
    assert source.start.word == source.stop.word == ""


@pytest.mark.parametrize(
    "given",
    ["tomorrow", "2024-05-01T12:30", "2024-05-01", "", datetime(2024, 5, 1), 1.5, True, 2**64],
)
def test_what_is_no_time_is_told_what_is(given: Any) -> None:
    with pytest.raises(
        InvalidPipeline, match='start= is "earliest", "latest", a time with its zone'
    ):
        starting(given)
    with pytest.raises(
        InvalidPipeline, match='stop= is "latest", a time with its zone .*T12:30:00'
    ):
        starting("earliest", stop=given)


@pytest.mark.parametrize("word", ["earliest", "latest"])
def test_words_stay_words(word: str) -> None:
    assert starting(word).start.word == word and starting(word).start.at_us is None


def test_a_time_before_1970_means_the_first_record_and_no_word_of_kafka() -> None:
    assert starting(-1000).start.at_us == starting("1969-12-31T23:00Z").start.at_us == 0


@pytest.mark.parametrize("place", ["orders/x", "orders/-1", "orders", "/0", "orders/", True])
def test_offsets_belong_to_partitions(place: Any) -> None:
    with pytest.raises(InvalidPipeline, match="offsets are numbers by partition"):
        starting({place: 4})
