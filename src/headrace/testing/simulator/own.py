"""`simulate`: runs a user's pipeline under the schedules of the simulator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headrace.errors import InvalidPipeline
from headrace.pipeline.fluent.builder import PipelineBuilder
from headrace.testing.simulator.checkers.consumer import Row
from headrace.testing.simulator.checkers.violation import Violation
from headrace.testing.simulator.contract import SimulationOutcome
from headrace.testing.simulator.faults.kinds import DISK, FACES
from headrace.testing.simulator.runner import SimulationFailed, Verdict, face_of, judge

Records = Sequence[Any] | Mapping[str, Sequence[Any]]


def simulate(
    pipeline: Callable[[], PipelineBuilder],
    records: Mapping[str, Records],
    *,
    seeds: int | Iterable[int] = 100,
    check: Callable[[SimulationOutcome], None] | None = None,
    compare: bool = True,
    store: str | None = None,
) -> list[Verdict]:
    """Runs a pipeline under seeded schedules of faults; the first failure is a SimulationFailed.

    Tasks die and run twice, drivers die, sleep and wake, writes are torn and lost, the power
    fails, sinks fail, rings and clocks change; requests to an object store land late, twice or
    without an answer. Every guarantee is checked.

    - `pipeline`: a function that makes the pipeline, once per seed. Its sources are replaced by
      `records`, with their own timing; its sinks by directories on a simulated disk
      (without any sink, every stream gets one).
    - `records`: for every source's stream the values of its records, as a list, or as a
      dict of lists, one for each split. About 10 to 50 are enough.
    - `seeds`: the number of seeds, counted from 0, or the seeds themselves.
    - `check`: looks at the `SimulationOutcome` of a seed: `.outputs[sink][epoch]`, a list of
      (value, timestamp) with values as JSON shows them; `.checkpoint` with `.get` and
      `.scan`; `.hooks`, the calls of user code. It raises AssertionError where it
      finds something wrong.
    - `compare`: whether every seed must make the same rows as a run without faults, in any
      order (and with the same timestamps, unless a source stamps its records when they
      arrive). Turn it off for code whose output depends on how the input is cut into epochs
      (timers and records mixed in a computation that is not ordered), or on its own random
      numbers.
    - `store`: what the checkpoint lies on, "disk" or "objects" (an object store); by default
      each seed chooses.

        def test_orders_survive_everything():
            simulate(orders, {"orders": [order("placed"), order("paid")]}, seeds=200)
    """
    if store is not None and store not in FACES:
        raise InvalidPipeline(f"store= is one of {', '.join(FACES)}, not {store!r}")
    chosen = range(seeds) if isinstance(seeds, int) else seeds
    splits = {stream: _by_split(given) for stream, given in records.items()}
    expected: dict[str, list[str]] | None = None
    if compare:
        calm = _Own(pipeline, splits)
        verdict, outcome = _judged(calm, 0, DISK, faults=False)
        if outcome is None:
            raise SimulationFailed(f"without any fault: {verdict.complaint}")
        expected = calm.rows(outcome)
    verdicts = []
    for seed in chosen:
        own = _Own(pipeline, splits, check, expected)
        verdict, _ = _judged(own, seed, store or face_of(seed))
        if verdict.complaint is not None:
            raise SimulationFailed(str(verdict))
        verdicts.append(verdict)
    return verdicts


def _judged(
    own: _Own, seed: int, face: str, *, faults: bool = True
) -> tuple[Verdict, SimulationOutcome | None]:
    return judge(seed, lambda _: own, f"simulate(..., seeds=[{seed}])", faults=faults, face=face)


class _Own:
    """A user's pipeline as a workload."""

    def __init__(
        self,
        pipeline: Callable[[], PipelineBuilder],
        records: dict[str, dict[str, list[Any]]],
        check: Callable[[SimulationOutcome], None] | None = None,
        expected: dict[str, list[str]] | None = None,
    ) -> None:
        self.records: dict[str, dict[str, list[Any]]] = {}
        self._given = records
        self._pipeline, self._check, self._expected = pipeline, check, expected
        self.name = "own"
        self._timed = True

    def pipeline(self) -> PipelineBuilder:
        """Makes the pipeline again, so that seeds share no objects."""
        made = self._pipeline()
        self.name = made.name
        injectors = made.freeze().graph.injectors
        self._timed = all(i.source.timing.timestamp is not None for i in injectors.values())
        # Records of a source with ids first go to a stream in front of the one that users know.
        given = {stream.removesuffix(".raw"): stream for stream in injectors}
        if set(given) != set(self._given):
            raise InvalidPipeline(
                f"records are given for {', '.join(self._given) or 'no stream'}; the sources of "
                f"{made.name!r} feed {', '.join(given)}"
            )
        self.records = {stream: self._given[name] for name, stream in given.items()}
        return made

    def appeared(self, sink: str, epoch: int, rows: list[Row]) -> None:
        """Does nothing: only the final outcome is checked."""

    def check(self, outcome: SimulationOutcome) -> None:
        """Runs the user's check, and compares the rows with those of a run without faults."""
        if self._expected is not None:
            found = self.rows(outcome)
            for sink, rows in self._expected.items():
                if rows != found[sink]:
                    raise Violation(_difference(sink, rows, found[sink]))
        if self._check is not None:
            try:
                self._check(outcome)
            except AssertionError as error:
                raise Violation(f"the check failed: {error}") from error

    def rows(self, outcome: SimulationOutcome) -> dict[str, list[str]]:
        """Sink -> its rows, sorted."""
        return {
            sink: sorted(
                json.dumps(row if self._timed else row[0], sort_keys=True)
                for rows in epochs.values()
                for row in rows
            )
            for sink, epochs in outcome.outputs.items()
        }


def _by_split(records: Records) -> dict[str, list[Any]]:
    if isinstance(records, Mapping):
        return {split: list(values) for split, values in records.items()}
    return {"split-0": list(records)}


def _difference(sink: str, expected: list[str], found: list[str]) -> str:
    missing, extra = list(expected), []
    for row in found:
        if row in missing:
            missing.remove(row)
        else:
            extra.append(row)
    return (
        f"sink {sink} is not as in a run without faults: {len(missing)} rows are missing "
        f"{missing[:3]}, {len(extra)} are too many {extra[:3]}"
    )
