"""Hypothesis without surprises: the same examples in every run, so failures can be repeated."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "headrace",
    derandomize=True,
    deadline=None,
    max_examples=60,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("headrace")
