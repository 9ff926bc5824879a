"""Compares findings with the planted events: precision and recall.

Findings are made per bucket; adjacent findings of one kind and query are one *incident*. An
incident is right if it overlaps a planted event of its kind, and a planted event is found if an
incident overlaps it. The daily cycle and the flurry must cause no incident: one is a false alarm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.demo.model import BUCKET
from headrace.demo.queries import Planted
from headrace.demo.reference import Finding

# Kind of event -> kind of finding that it must lead to.
EXPECTED = {"spike": "spike", "outage": "dip"}


@dataclass(frozen=True)
class Incident:
    """Findings of one kind and query in a row, from `start` up to `end`."""

    kind: str
    query: str
    start: int
    end: int

    def explains(self, event: Planted) -> bool:
        """Whether this is what a planted event must look like."""
        return (
            self.kind == EXPECTED.get(event.kind)
            and self.query == event.query
            and self.start < event.end
            and event.start < self.end
        )


@dataclass(frozen=True)
class Score:
    """The events that were found and those that were missed, and the false alarms."""

    found: tuple[tuple[Planted, Incident], ...]
    missed: tuple[Planted, ...]
    false_alarms: tuple[Incident, ...]
    incidents: int

    @property
    def precision(self) -> float:
        """The share of incidents that are right; 1 where there is none."""
        if not self.incidents:
            return 1.0
        return (self.incidents - len(self.false_alarms)) / self.incidents

    @property
    def recall(self) -> float:
        """The share of planted events that were found; 1 where there was none."""
        planted = len(self.found) + len(self.missed)
        return len(self.found) / planted if planted else 1.0


def incidents_of(findings: Iterable[Finding]) -> list[Incident]:
    """Joins adjacent findings to incidents, in order of time."""
    joined: dict[tuple[str, str], list[Incident]] = {}
    for finding in sorted(set(findings), key=lambda finding: finding.start):
        row = joined.setdefault((finding.kind, finding.query), [])
        end = finding.start + BUCKET
        if row and row[-1].end == finding.start:
            row[-1] = Incident(finding.kind, finding.query, row[-1].start, end)
        else:
            row.append(Incident(finding.kind, finding.query, finding.start, end))
    return sorted((i for row in joined.values() for i in row), key=lambda i: (i.start, i.query))


def score(findings: Iterable[Finding], planted: Sequence[Planted]) -> Score:
    """Compares findings with the planted events."""
    incidents = incidents_of(findings)
    found, missed = [], []
    for event in planted:
        if event.kind not in EXPECTED:
            continue
        incident = next((i for i in incidents if i.explains(event)), None)
        if incident is None:
            missed.append(event)
        else:
            found.append((event, incident))
    false_alarms = [i for i in incidents if not any(i.explains(event) for event in planted)]
    return Score(tuple(found), tuple(missed), tuple(false_alarms), len(incidents))
