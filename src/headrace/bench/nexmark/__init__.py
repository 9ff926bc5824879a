"""Nexmark's joins and sessions (q3, q8, q11), side by side with peers.

`answers` has the input and the right rows, `ours` and `spark_native`, `spark_tws` the queries.
"""
