"""The view of a run in a notebook, with a display that remembers what it was told."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.engine.notebook import NotebookView, notebook_view, with_notebook_view
from headrace.plan.progress import EpochProgress, Notice, RunSummary


class Output:
    """The output of a cell."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.htmls: list[str] = []

    def display(self, data: dict[str, str], **options: Any) -> "Output":
        assert options == {"raw": True, "display_id": True}
        self.update(data, raw=True)
        return self

    def update(self, data: dict[str, str], raw: bool) -> None:
        self.shown.append(data["text/plain"])
        self.htmls.append(data["text/html"])


def epoch(number: int, pipeline: str = "shop") -> EpochProgress:
    return EpochProgress(pipeline, number, 10, 10 * number, 1, 0.1, 0, 0, 0, 0, 0)


def test_a_run_is_one_output_that_is_updated_at_most_twice_a_second() -> None:
    output, now = Output(), [0.0]
    view = NotebookView(output.display, clock=lambda: now[0])
    assert output.shown == ["starting ..."], "below the cell that starts the run"
    for number in range(1, 11):
        now[0] += 0.1
        view.on_epoch(epoch(number))
    assert len(output.shown) == 3
    view.on_notice(Notice("shop", "away", "paused: the sink is away"))
    assert "epoch 10" in output.shown[-1] and "the sink is away" in output.shown[-1]
    view.on_end(RunSummary("shop", 10, 100, 0, 0, "end"))
    assert "shop: all input was read." in output.shown[-1]


def test_names_are_escaped_in_html() -> None:
    output = Output()
    NotebookView(output.display).on_epoch(epoch(1, "<script>"))
    assert "<script>" not in output.htmls[-1] and "&lt;script&gt;" in output.htmls[-1]


def test_only_a_notebook_gets_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert notebook_view() is None
    shell = SimpleNamespace(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=Output().display))
    assert notebook_view() is None  # IPython in a terminal
    shell.kernel = object()
    assert isinstance(notebook_view(), NotebookView)
    [listener] = with_notebook_view({"slots": 3})["listeners"]
    assert isinstance(listener, NotebookView)
    assert with_notebook_view({"listeners": []}) == {"listeners": []}  # asked for silence
