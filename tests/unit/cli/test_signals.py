"""One signal stops gracefully, a second one at once."""

import os
import signal
import threading
import time

import pytest

from headrace.engine.leading.signals import STOPPING, ended_by_sigterm, graceful_stop


class Job:
    """Counts how often it was asked to stop."""

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def stop(self, wait: bool = True) -> None:
        self.stopped.set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_the_job_to_stop(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    job = Job()
    with graceful_stop(job.stop, STOPPING):
        os.kill(os.getpid(), number)
        assert job.stopped.wait(5)
    assert "Stopping after the current epoch" in capfd.readouterr().err


def test_the_second_signal_interrupts() -> None:
    with pytest.raises(KeyboardInterrupt):
        with graceful_stop(Job().stop):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)


def test_the_former_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with graceful_stop(Job().stop):
        assert signal.getsignal(signal.SIGTERM) is not before[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_sigterm_before_a_run_begins_ends_it_with_0(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        with ended_by_sigterm():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
    assert ended.value.code == 0
    assert "before the run began" in capfd.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before
