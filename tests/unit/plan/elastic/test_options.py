"""The options of a run about balance and scale."""

import pytest

from headrace import Scale
from headrace.errors import InvalidPipeline
from headrace.limits import LIMITS
from headrace.plan.decisions.resizing import elasticity, report_every
from headrace.plan.options import Options, check_options


def test_load_is_balanced_and_slots_stay_unless_told_otherwise() -> None:
    options = check_options({})
    assert options.balance == "even"
    assert options.scale is None


def test_the_scaler_is_set_by_a_struct_by_text_or_by_one_word() -> None:
    assert check_options({"scale": "on"}).scale == Scale()
    assert check_options({"scale": "off"}).scale is None
    assert check_options({"scale": Scale(above=0.8)}).scale == Scale(above=0.8)
    given = check_options({"scale": "above=0.8, reports=3, cooldown=30s"}).scale
    assert given == Scale(above=0.8, reports=3, cooldown="30s")


@pytest.mark.parametrize("wrong", ["maybe", "above", "speed=3", "above=much", "reports=0", 3])
def test_other_settings_of_the_scaler_are_refused(wrong: object) -> None:
    with pytest.raises(InvalidPipeline, match="scale=|Scale"):
        check_options({"scale": wrong})  # type: ignore[typeddict-item]


def test_other_policies_and_numbers_of_slots_are_refused() -> None:
    with pytest.raises(InvalidPipeline, match="balance="):
        check_options({"balance": "odd"})
    with pytest.raises(InvalidPipeline, match="max_slots="):
        check_options({"max_slots": 0})


def test_slots_stay_within_the_cores_unless_told_otherwise() -> None:
    assert elasticity(Options(scale=Scale()), 2, 2).slots_max == 2
    assert elasticity(Options(scale=Scale(), max_slots=16), 2, 2).slots_max == 16
    grown = elasticity(Options(scale=Scale()), 2, 2, grows=True)
    assert grown.slots_max > 2
    assert grown.sets_tasks
    assert not elasticity(Options(), 2, 2, grows=True).sets_tasks


def test_reports_come_more_rarely_with_many_slots_and_not_at_all_where_nothing_is_decided() -> None:
    assert report_every(Options(), LIMITS, 8) == 0
    assert report_every(Options(balance="even"), LIMITS, 8) == LIMITS.report_every_epochs
    assert report_every(Options(balance="even"), LIMITS, 10_000) > 64
    assert report_every(Options(scale=Scale(every=5)), LIMITS, 10_000) == 5


def test_an_epoch_takes_some_time() -> None:
    with pytest.raises(InvalidPipeline, match="epoch_target= is longer"):
        check_options({"epoch_target": "0s"})
