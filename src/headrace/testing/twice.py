"""Runs every epoch twice, and compares: finds code whose results are not the same each time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.engine.driver.local import LocalSubstrate, run_epoch
from headrace.engine.replay.difference import first_unlike
from headrace.engine.replay.replay import one_at_a_time
from headrace.errors import NondeterministicCode
from headrace.observe.replayed import call_lines
from headrace.plan.epoch import Report, WorkOrder
from headrace.state.cache import WorkerCache
from headrace.store.overlay import Overlay
from headrace.worker.runtime import Runtime
from headrace.worker.watching.hook_recorder import ObservedRuntime, Observer


class TwiceSubstrate(LocalSubstrate):
    """Runs every epoch twice, on a warm and on a cold cache, and compares."""

    def __init__(self, runtime: Runtime, parallelism: int, twice: bool) -> None:
        super().__init__(runtime)
        self.parallelism = parallelism
        self._twice = twice

    def run(self, task: WorkOrder) -> Sequence[Report]:
        reports = run_epoch(self.runtime, task)
        if self._twice:
            warm, self.runtime.cache = self.runtime.cache, WorkerCache()
            try:
                # Answers from outside may differ: both runs get the same ones.
                answers = {r.label: r.determinants for r in reports}
                task = msgspec.structs.replace(task, answers=answers)
                again = {r.label: r for r in run_epoch(self.runtime, task)}
            finally:
                self.runtime.cache = warm
            for report in reports:
                if again[report.label].digest != report.digest and report.error is None:
                    raise NondeterministicCode(
                        f"epoch {task.plan.epoch}: {report.label} gave two different results when "
                        "run twice on the same input. Does the code call random() or the clock, "
                        "depend on a set's order, or share state between keys? Use ctx.random, "
                        f"ctx.now() and declared fields{self._shown(task)}"
                    )
        return reports

    def _shown(self, task: WorkOrder) -> str:
        """Runs the epoch twice more, and names the first hook call that differs, if any does."""
        runs = []
        for _ in range(2):
            observer = Observer()
            topology = one_at_a_time(self.runtime.topology)
            overlay = Overlay(self.runtime.store)
            try:
                run_epoch(ObservedRuntime(topology, overlay, WorkerCache(), observer), task)
            except Exception:
                return ""
            runs.append(observer.calls)
        shown = [
            "\n".join(f"    {line}" for line in call_lines(call))
            for call in first_unlike(*runs) or ()
            if call is not None
        ]
        titles = ("The first call that shows it", "Once more")
        return "".join(f"\n{t}:\n{s}" for t, s in zip(titles, shown, strict=False))
