"""Sessions of clicks: half an hour of silence ends one; clicks that come too late go aside.

    python examples/click_sessions.py

A session stays open ten minutes longer than it lasts (`grace`), so that clicks that were
held up still count. What comes later than that is written to a place of its own. What is late
is judged by the watermark of the epoch before, so epochs are kept small here: in one large
epoch nothing is late.
"""

from headrace import Pipeline, agg, session, sinks, sources, to

CLICKS = [
    {"user": "ada", "page": "/", "at": "2026-01-05T09:00:00Z"},
    {"user": "ada", "page": "/mill", "at": "2026-01-05T09:10:00Z"},
    {"user": "bob", "page": "/wheel", "at": "2026-01-05T09:12:00Z"},
    {"user": "ada", "page": "/", "at": "2026-01-05T10:30:00Z"},
    {"user": "ada", "page": "/wheel", "at": "2026-01-05T10:35:00Z"},
    {"user": "bob", "page": "/late", "at": "2026-01-05T09:13:00Z"},  # far too late
]

p = Pipeline("click-sessions")
clicks = p.read("clicks", sources.memory(CLICKS, timestamp="at", lateness="1m"))
(
    clicks.key_by("user")
    .window(session("30m"), grace="10m", late=to("late_clicks"))
    .aggregate(clicks=agg.count(), pages=agg.distinct("page"), landing=agg.first("page"))
    .named("sessions")
    .write(sinks.jsonl("out/sessions"))
)
p.stream("late_clicks").write(sinks.jsonl("out/late_clicks"))

if __name__ == "__main__":
    print(p.run(checkpoint="out/sessions_state", epoch_records=2))
