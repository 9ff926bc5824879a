"""What all tests share."""

from hypothesis import settings

# A busy machine must not fail a test. What else the current profile says stays, as in CI.
settings.register_profile("patient", settings.default, deadline=None)
settings.load_profile("patient")
