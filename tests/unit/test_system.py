"""What the engine takes from its environment."""

import os
import sys
import threading

import pytest

from headrace.system import System


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a priority for each thread")
def test_threads_of_low_priority_leave_the_priority_of_others_alone() -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = priority()
    with System().executor("low", low_priority=True) as low, System().executor("usual") as usual:
        assert low.submit(priority).result() == max(before, 10)
        assert usual.submit(priority).result() == before
    assert priority() == before
