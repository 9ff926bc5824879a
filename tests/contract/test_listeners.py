"""What every listener of a run is promised, whatever the others do."""

import logging
from typing import Any

import pytest
from tests.unit.engine.support import Count, counting, follower_of

from headrace import EpochProgress, HeadraceError, Listener, Notice, RunSummary, UserCodeError
from headrace.engine.job import Job
from headrace.engine.leading.loop import run_loop
from headrace.errors import InvalidPipeline
from headrace.observe.progress import PlainView
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.pipeline.graph.topology import Topology
from headrace.plan.options import check_options
from headrace.sinks import foreach
from headrace.sources import memory

VALUES = [1, 2, 1, 3, 2, 1, 1]


class Recorder(Listener):
    """Keeps what it is given, in order."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_epoch(self, progress: EpochProgress) -> None:
        self.heard.append(progress)

    def on_notice(self, notice: Notice) -> None:
        self.heard.append(notice)

    def on_end(self, summary: RunSummary) -> None:
        self.heard.append(summary)

    def on_failure(self, error: Exception) -> None:
        self.heard.append(error)

    @property
    def kinds(self) -> list[str]:
        return [type(heard).__name__ for heard in self.heard]


class Raising(Recorder):
    """Raises wherever it is called."""

    def on_epoch(self, progress: EpochProgress) -> None:
        raise ValueError("no epochs, please")

    def on_end(self, summary: RunSummary) -> None:
        raise ValueError("no end, please")


def test_all_listeners_get_the_same_in_the_same_order() -> None:
    first, second = Recorder(), Recorder()
    summary = run_loop(follower_of(counting(VALUES), listeners=(first, second)))
    assert first.heard == second.heard
    epochs = [heard.epoch for heard in first.heard if isinstance(heard, EpochProgress)]
    assert epochs == list(range(1, summary.epochs + 1))
    assert first.kinds == ["EpochProgress"] * summary.epochs + ["RunSummary"]
    assert first.heard[-1] == summary


@pytest.mark.parametrize("place", [0, 1])
def test_a_listener_that_raises_does_not_stop_the_run_and_is_reported_once(
    place: int, caplog: pytest.LogCaptureFixture
) -> None:
    calm, other = Recorder(), Recorder()
    listeners: list[Listener] = [calm, other]
    listeners.insert(place, Raising())
    with caplog.at_level(logging.WARNING, "headrace.run"):
        summary = run_loop(follower_of(counting(VALUES), listeners=tuple(listeners)))
    assert summary.reason == "end"
    assert calm.heard == other.heard, "what happened comes first, then the report"
    assert calm.kinds[:2] == ["EpochProgress", "Notice"]
    assert calm.kinds[-2:] == ["RunSummary", "Notice"]
    reports = [heard for heard in calm.heard if isinstance(heard, Notice)]
    assert [notice.kind for notice in reports] == ["listener", "listener"]
    assert "Raising raised in on_epoch: ValueError: no epochs, please" in reports[0].text
    assert len([r for r in caplog.records if "Raising raised" in r.message]) == 2


def test_a_failed_run_ends_with_on_failure_and_nothing_else() -> None:
    def refuse(rows: Any, epoch: int) -> None:
        raise LookupError("no such table")

    recorder = Recorder()
    with pytest.raises(HeadraceError) as raised:
        run_loop(follower_of(counting(VALUES, foreach(refuse)), listeners=(recorder,)))
    assert recorder.heard[-1] is raised.value
    assert "RunSummary" not in recorder.kinds


def test_an_interrupt_in_a_listener_ends_the_run() -> None:
    class Interrupted(Listener):
        def on_epoch(self, progress: EpochProgress) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_loop(follower_of(counting(VALUES), listeners=(Interrupted(),)))


def test_notices_are_logged_where_no_listener_takes_them(caplog: pytest.LogCaptureFixture) -> None:
    epochs: list[EpochProgress] = []

    def topology() -> Topology:
        return counting(memory(VALUES, timestamp=lambda value: value * 1_000_000_000))

    with caplog.at_level(logging.INFO, "headrace.run"):
        run_loop(follower_of(topology(), on_epoch=epochs.append))
    logged = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert epochs and any("is unit= right?" in record.message for record in logged)
    caplog.clear()
    notices: list[Notice] = []
    with caplog.at_level(logging.INFO, "headrace.run"):
        run_loop(follower_of(topology(), on_notice=notices.append))
    assert [notice.kind for notice in notices] == ["doubt"] and not caplog.records


def test_the_terminal_view_is_a_listener_among_others(capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder()
    with PlainView() as view:
        run_loop(follower_of(counting(VALUES), listeners=(view, recorder)))
    said = capsys.readouterr().out
    assert "epoch 1 |" in said and "counting: all input was read." in said
    assert recorder.kinds[-1] == "RunSummary"


def test_listeners_and_callbacks_of_a_run_are_checked_and_joined() -> None:
    recorder, epochs, notices = Recorder(), [], []
    options = check_options(
        {"listeners": [recorder], "on_epoch": epochs.append, "on_notice": notices.append}
    )
    assert options.listeners[0] is recorder and len(options.listeners) == 3
    with pytest.raises(InvalidPipeline, match="listeners= holds Listeners"):
        check_options({"listeners": [print]})  # type: ignore[list-item]
    with pytest.raises(TypeError, match="there is no option 'slot' of a run; there are: until"):
        check_options({"slot": 3})  # type: ignore[typeddict-unknown-key]


def test_a_status_is_a_struct_that_cannot_be_changed() -> None:
    job = Job(follower_of(counting(VALUES)))
    job.wait(60)
    status = job.status()
    assert (status.pipeline, status.phase, status.running) == ("counting", "ended", False)
    assert (status.records, status.generation, status.outage, status.error) == (7, 1, None, None)
    with pytest.raises(AttributeError):
        status.epoch = 9  # type: ignore[misc]


def test_user_errors_reach_listeners_as_they_reach_the_caller() -> None:
    def fails(value: Any) -> str:
        raise ValueError("no key")

    pipeline = PipelineBuilder("failing")
    pipeline.read("in", memory([1]))
    pipeline.compute(Count, inputs={"in": fails}, outputs="out")
    recorder = Recorder()
    with pytest.raises(UserCodeError) as raised:
        run_loop(follower_of(pipeline.freeze(), listeners=(recorder,)))
    assert recorder.heard == [raised.value]
