"""The live view: plain lines, and the table on a terminal."""

import io
from typing import Any

from rich.console import Console

from headrace.model.values.time import SECOND
from headrace.observe.progress import LiveView, PlainView, summary_lines, terminal_view
from headrace.plan.progress import EpochProgress, RunSummary


class Clock:
    """A clock that stands still until told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def epoch(number: int, **changes: Any) -> EpochProgress:
    facts = {
        "pipeline": "p",
        "epoch": number,
        "records": 500,
        "records_total": 500 * number,
        "produced": 3,
        "seconds": 0.2,
        "watermark": 1_772_409_600 * SECOND,
        "newest": 1_772_409_615 * SECOND,
        "state_bytes": 1_500,
        "late": 2,
        "dead": 1,
    }
    return EpochProgress(**(facts | changes))


def test_plain_lines_come_about_once_a_second_and_the_last_epoch_always() -> None:
    output, clock = io.StringIO(), Clock()
    with PlainView(output, clock) as view:
        for number in range(1, 28):
            clock.now += 0.125
            view.on_epoch(epoch(number))
    shown = [line.split(" | ")[0] for line in output.getvalue().splitlines()]
    assert shown == ["epoch 1", "epoch 9", "epoch 17", "epoch 25", "epoch 27"]


def test_an_epoch_is_never_shown_twice() -> None:
    output, clock = io.StringIO(), Clock()
    view = PlainView(output, clock)
    clock.now += 0.1
    view.on_epoch(epoch(1))
    view.close()
    view.close()
    assert len(output.getvalue().splitlines()) == 1


def test_a_plain_line_tells_what_an_operator_asks_for() -> None:
    output, clock = io.StringIO(), Clock()
    view = PlainView(output, clock)
    clock.now += 0.5
    view.on_epoch(epoch(1))
    assert output.getvalue() == (
        "epoch 1 | 500 records | 1,000/s | watermark 2026-03-02T00:00:00Z (15s behind) | "
        "state 1.5 kB | late 2 | dead 1\n"
    )


def test_the_rate_forgets_what_is_long_past() -> None:
    output, clock = io.StringIO(), Clock()
    view = PlainView(output, clock)
    clock.now += 1
    view.on_epoch(epoch(1, records=1_000_000))
    for number in range(2, 12):
        clock.now += 1
        view.on_epoch(epoch(number, records=100))
    assert output.getvalue().splitlines()[-1].split(" | ")[2] == "100/s"


def test_on_a_terminal_the_table_goes_and_the_last_line_stays() -> None:
    output, clock = io.StringIO(), Clock()
    console = Console(file=output, force_terminal=True, width=100)
    with LiveView(console, clock) as view:
        clock.now += 0.5
        view.on_epoch(epoch(1))
        assert "watermark" in output.getvalue()
        view.say("a finding [in brackets]")
    text = output.getvalue()
    assert "a finding [in brackets]" in text
    assert text.count("epoch 1 | 500 records") == 1


def test_a_view_that_saw_no_epoch_ends_in_silence() -> None:
    output = io.StringIO()
    with terminal_view(output) as view:
        pass
    view.close()
    assert output.getvalue() == ""


def test_watch_is_plain_where_nobody_watches() -> None:
    assert isinstance(terminal_view(io.StringIO()), PlainView)


def test_the_summary_says_how_it_ended_and_what_was_left_behind() -> None:
    summary = RunSummary(
        "shop", 3, 1_500, 2, 1, "stopped", notes=("4 timers did not fire",), counts={"C.seen": 9}
    )
    assert summary_lines(summary, 3.0) == [
        "shop: stopped; a new start with the same checkpoint goes on from here.",
        "1,500 records in 3 epochs, 3s, 500/s; 2 late, 1 dead letter.",
        "  C.seen: 9",
        "Note: 4 timers did not fire",
    ]


def test_the_summary_counts_as_people_do() -> None:
    text = str(RunSummary("p", 1, 1, 0, 0, "end"))
    assert text.splitlines()[1] == "1 record in 1 epoch; 0 late, 0 dead letters."


def test_finish_shows_the_last_epoch_before_the_summary() -> None:
    output, clock = io.StringIO(), Clock()
    view = PlainView(output, clock)
    view.on_epoch(epoch(1))
    view.on_epoch(epoch(2, ended=True))
    view.on_end(RunSummary("p", 2, 1_000, 0, 0, "end"))
    lines = output.getvalue().splitlines()
    assert [line.split(" | ")[0] for line in lines[:2]] == ["epoch 1", "epoch 2"]
    assert lines[2] == "p: all input was read."
