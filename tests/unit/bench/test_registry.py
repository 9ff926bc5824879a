"""Every peer that can be asked for can be loaded."""

from __future__ import annotations

import pytest

from headrace.bench.frame.registry import load_system
from headrace.bench.frame.system import (
    BARE,
    BARE_ONE_STAGE,
    FOREIGN,
    NEXMARK_NATIVE,
    NEXMARK_TWS,
    NEXMARK_TWS_PANDAS,
    PEERS,
    SERVICES,
    WINDOWS_NATIVE,
    WINDOWS_TWS,
    WINDOWS_TWS_ROW,
)
from headrace.errors import HeadraceError

WINDOWS = (WINDOWS_NATIVE, WINDOWS_TWS, WINDOWS_TWS_ROW)
NEXMARK = (NEXMARK_NATIVE, NEXMARK_TWS, NEXMARK_TWS_PANDAS)
OTHERS = (BARE, BARE_ONE_STAGE, SERVICES)


@pytest.mark.parametrize("name", [*PEERS, *FOREIGN, *WINDOWS, *NEXMARK, *OTHERS])
def test_a_peer_is_loaded_under_its_own_name(name: str) -> None:
    assert getattr(load_system(name), "name", None) == name


def test_a_name_without_a_system_is_refused() -> None:
    with pytest.raises(HeadraceError, match="spark-twt"):
        load_system("spark-twt")
