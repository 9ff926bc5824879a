"""The model of a query's day."""

from headrace.demo.model import SPREAD_MIN, dip_limit, learn, root, spike_limit


def test_limits_lie_around_what_is_normal_and_farther_out_for_larger_counts() -> None:
    gaps = []
    for count in (20, 80, 320):
        low, high = dip_limit(root(count), SPREAD_MIN), spike_limit(root(count), SPREAD_MIN)
        assert low < count < high
        gaps.append(high - low)
    assert gaps == sorted(gaps)


def test_where_hardly_anyone_asks_nothing_proves_a_dip() -> None:
    assert dip_limit(root(5), SPREAD_MIN) == 0


def test_the_first_day_is_taken_as_it_is() -> None:
    assert learn(None, SPREAD_MIN, 40) == (root(40), SPREAD_MIN)


def test_a_steady_query_is_learned_and_stays_at_its_spread() -> None:
    level, spread = learn(None, SPREAD_MIN, 50)
    for _ in range(30):
        level, spread = learn(level, spread, 40)
    assert abs(level - root(40)) < 0.01
    assert spread == SPREAD_MIN


def test_one_spike_does_not_make_the_next_ordinary_day_a_dip() -> None:
    level, spread = learn(root(40), SPREAD_MIN, 100_000)
    assert dip_limit(level, spread) <= 40 <= spike_limit(level, spread)


def test_one_outage_does_not_make_the_next_ordinary_day_a_spike() -> None:
    level, spread = learn(root(40), SPREAD_MIN, 0)
    assert dip_limit(level, spread) <= 40 <= spike_limit(level, spread)


def test_a_query_that_changed_for_good_is_followed_within_days() -> None:
    level, spread = root(40), SPREAD_MIN
    for days in range(20):  # noqa: B007
        if dip_limit(level, spread) <= 400 <= spike_limit(level, spread):
            break
        level, spread = learn(level, spread, 400)
    assert 1 < days < 10
