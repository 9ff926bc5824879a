"""Nexmark's joins and sessions (q3, q8, q11), side by side with peers.

`answers` has the input and the right rows, `ours`, `spark_native`, `spark_tws` and
`spark_tws_pandas` the queries.
"""
