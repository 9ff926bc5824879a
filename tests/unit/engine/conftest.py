"""No test of the engine leaves a failpoint armed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace import failpoints


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()
