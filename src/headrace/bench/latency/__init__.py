"""Latency as users feel it: from a record's arrival at the source until its result is visible.

The load is open: input appears at a steady pace, whatever the system does. Reading order:
`arithmetic` (paces, percentiles), `queries` and `events` (what is asked, and the right answer),
`streams` (the queries in Structured Streaming), `members` (one system, in a process of its own),
`process` (its life, seen from outside), `stages` (one stage of load), `run` (all stages of all
systems, by turns, and the document), `beside` (the same after another benchmark's throughput).
"""
