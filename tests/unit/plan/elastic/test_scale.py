"""Figures on a logarithmic scale."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.plan.elastic.scale import differs, figure_of, step_of


def test_no_load_is_step_zero_and_no_other_load_is() -> None:
    assert step_of(0) == 0
    assert figure_of(0) == 0
    assert step_of(1) > 0


@given(st.integers(min_value=64, max_value=10**12))
def test_a_figure_comes_back_within_a_thirty_second(figure: int) -> None:
    assert abs(figure_of(step_of(figure)) - figure) * 32 <= figure + 32


@given(st.integers(min_value=0, max_value=10**9), st.integers(min_value=0, max_value=10**9))
def test_steps_rise_with_figures(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert step_of(low) <= step_of(high)


def test_only_figures_that_moved_by_more_than_an_eighth_differ() -> None:
    assert not differs(step_of(100_000), step_of(105_000))
    assert differs(step_of(100_000), step_of(120_000))
    assert differs(step_of(100_000), step_of(80_000))
