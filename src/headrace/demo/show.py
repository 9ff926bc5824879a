"""The text that the Zeitgeist demo prints, as lines."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from textwrap import fill

from headrace.demo.model import BUCKET, BUCKETS_PER_DAY, DAILY
from headrace.demo.outcome import DemoOutcome, Row
from headrace.demo.queries import DAYS, LATENESS, QUERIES, REGIONS, Planted, SearchLog
from headrace.demo.reference import Finding, reference
from headrace.demo.score import Incident, Score, score
from headrace.model.values.time import MINUTE, SECOND

WIDTH = 88
# Computations that read the searches themselves: by query, by region, and for spikes.
READERS = 3

_BARS = "▁▂▃▄▅▆▇█"

_EXPLANATION = (
    "What you just saw: small Python classes, one object per query or region, run on Spark with "
    "their state kept in a checkpoint and every search counted exactly once. Spikes were reported "
    "with the search that exceeded the limit, before their hour was over. Dips were reported when "
    "the low watermark proved that no more searches could arrive, so the delayed flurry caused no "
    "false dip. The daily cycle of each query was learned from the stream, so mornings and nights "
    "are not reported. Use --dir, kill the run, continue with --resume: the answer is the same."
)


def opening_lines(log: SearchLog, files: int) -> list[str]:
    """Explains the input and what the run will do."""
    text = (
        f"Zeitgeist: {len(log):,} searches over {DAYS} simulated days, for {len(QUERIES)} queries "
        f"from {len(REGIONS)} regions, in {files} files in order of arrival. Which of them are "
        f"suddenly much more, or much less, frequent than usual? The first day is for learning."
    )
    return [fill(text, WIDTH), ""]


class Announcer:
    """Turns findings into lines as they appear, one per incident."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str, int]] = set()

    def lines(self, rows: Iterable[Row]) -> list[str]:
        """A line for each row that begins a new incident."""
        lines = []
        for row in rows:
            kind, query, start = row["kind"], row["query"], row["start"]
            if (kind, query, start - BUCKET) not in self._told:
                lines.append(f"  {_clock(row['seen'])}  {kind:5}  {query:18} {_evidence(row)}")
            self._told.add((kind, query, start))
        return lines


def closing_lines(log: SearchLog, outcome: DemoOutcome, directory: Path) -> list[str]:
    """The score of the findings, the counts per region, and the paths of all files."""
    result = score(map(Finding.of, outcome.findings), log.planted)
    arrival = score(reference(log.by_arrival(), lateness="0s"), log.planted)
    return [
        "",
        "What was planted, and what was found:",
        *(_planted_line(event, result, arrival) for event in log.planted),
        *(_false_alarm(incident) for incident in result.false_alarms),
        "",
        f"Precision {result.precision:.2f}: "
        f"{result.incidents - len(result.false_alarms)} of {result.incidents} reports are right.",
        f"Recall    {result.recall:.2f}: "
        f"{len(result.found)} of {len(result.found) + len(result.missed)} events were found.",
        f"The same rules by time of arrival: precision {arrival.precision:.2f}, "
        f"recall {arrival.recall:.2f}.",
        f"Late records: {outcome.late} were more than {LATENESS} late, {log.late} were planted"
        f"{'.' if outcome.late == log.late else ': THESE DIFFER.'}",
        f"(They are late for each of the {READERS} computations that read the stream; the run's "
        "total counts them there.)",
        "",
        "The same stream by region, searches by hour of the day (UTC, 0h to 23h):",
        *_region_lines(outcome.regions),
        "",
        fill(_EXPLANATION, WIDTH),
        "",
        f"Input, output and checkpoint are in {directory}",
    ]


def _evidence(row: Row) -> str:
    if row["kind"] == "spike":
        left = (row["start"] + BUCKET - row["seen"]) // MINUTE
        return f"more than {row['limit']} in the hour, with {left} min of it to go"
    return f"fewer than {row['limit']} in the hour, proven by the watermark"


def _planted_line(event: Planted, result: Score, arrival: Score) -> str:
    found = next((incident for planted, incident in result.found if planted == event), None)
    if event.kind == "flurry":
        fooled = [i.kind for i in arrival.false_alarms if i.query == event.query]
        by_arrival = f" (by arrival: a false {' and a false '.join(fooled)})" if fooled else ""
        wrongly = any(i.query == event.query for i in result.false_alarms)
        verdict = "WRONGLY REPORTED" if wrongly else f"rightly not reported{by_arrival}"
    elif found is None:
        verdict = "MISSED"
    else:
        verdict = f"found: {found.kind} from {_clock(found.start)}"
    return f"  {_clock(event.start)}  {event.kind:6}  {event.query:18} {verdict}"


def _false_alarm(incident: Incident) -> str:
    return f"  {_clock(incident.start)}  {incident.kind:6}  {incident.query:18} FALSE ALARM"


def _region_lines(rows: Iterable[Row]) -> list[str]:
    by_hour = {region: [0] * BUCKETS_PER_DAY for region in REGIONS}
    for row in rows:
        by_hour.setdefault(row["region"], [0] * BUCKETS_PER_DAY)[DAILY.slot_of(row["bucket"])] += (
            row["count"]
        )
    return [f"  {region:10} {_bars(hours)}  {sum(hours):>8,}" for region, hours in by_hour.items()]


def _bars(values: list[int]) -> str:
    top = max(values) or 1
    return "".join(_BARS[value * (len(_BARS) - 1) // top] for value in values)


def _clock(micros: int) -> str:
    return datetime.fromtimestamp(micros // SECOND, UTC).strftime("%a %H:%M")
