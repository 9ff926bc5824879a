"""Workloads and peers behind `headrace bench`.

Every number this room publishes comes from systems measured side by side, on one
machine, in one run, over the very same input files, and checked against the same
expected answer. A peer does the same work in its cheapest honest set-up: a benchmark
that needs a slow rival proves nothing.

Reading order: `workload` (what is asked), `system` (who may answer, and how),
`registry` and `peers` (the rivals), `runner` (one system, one process), `rounds` (all,
interleaved), `bars` and `result` (what came out), `keyed_count` (the verb); `services`
and `overhead` (what exactly-once and causal logging cost).
"""
