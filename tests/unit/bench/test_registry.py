"""Every peer that can be asked for can be loaded."""

from __future__ import annotations

import pytest

from headrace.bench.frame.registry import load_system
from headrace.bench.frame.system import BARE, BARE_ONE_STAGE, PEERS, SERVICES
from headrace.errors import HeadraceError


@pytest.mark.parametrize("name", [*PEERS, BARE, BARE_ONE_STAGE, SERVICES])
def test_a_peer_is_loaded_under_its_own_name(name: str) -> None:
    assert getattr(load_system(name), "name", None) == name


def test_a_name_without_a_system_is_refused() -> None:
    with pytest.raises(HeadraceError, match="spark-twt"):
        load_system("spark-twt")
