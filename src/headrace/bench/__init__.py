"""Workloads and peers behind `headrace bench`.

All published numbers come from systems measured side by side: on one machine, in one run, over
the same input files, checked against the same expected answer. A peer does the same work in its
cheapest honest set-up: a benchmark that needs a slow peer proves nothing.

Reading order: `workload` (the query and its input), `frame.system` (the rules for every system),
`frame.registry` and `peers` (the peers), `frame.runner` (one system, one process), `frame.rounds`
(all systems, interleaved), `frame.bars` and `frame.result` (the published document),
`keyed_count` (the command); `services` and `overhead` (what exactly-once and causal logging cost).
"""
