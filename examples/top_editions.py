"""The three busiest Wikipedia editions of every hour.

    python examples/top_editions.py [edits.json.gz]

Without a file it takes a handful of made-up edits. Each edit is a JSON line with `time` and
`channel`, such as those of the Druid tutorial. Counts per edition and hour leave when the hour
is over, as rows that carry their window; `same_window` ranks the rows of one hour.
"""

import sys

from headrace import Pipeline, same_window, sinks, sources, tumbling

EDITS = [
    {"time": f"2015-09-12T{hour:02}:{minute:02}:00Z", "channel": f"#{edition}.wikipedia"}
    for hour in range(3)
    for minute, edition in enumerate(["en", "vi", "en", "de", "en", "vi", "fr"][: 7 - hour])
]


def pipeline(source: sources.Source) -> Pipeline:
    p = Pipeline("top-editions")
    (
        p.read("edits", source)
        .key_by("channel")
        .window(tumbling("1h"))
        .count("edits")
        .named("hourly")
        .key_by()
        .window(same_window())
        .top(3, by="edits")
        .write(sinks.jsonl("out/top_editions"))
    )
    return p


p = pipeline(
    sources.jsonl(sys.argv[1], timestamp="time")
    if __name__ == "__main__" and len(sys.argv) > 1
    else sources.memory(EDITS, timestamp="time")
)

if __name__ == "__main__":
    print(p.run(checkpoint="out/top_editions_state"))
