"""The systems Headrace is measured against, one file each.

Three answer the keyed count with Structured Streaming (`streaming` holds what
they share); `spark_bare` is the floor, the Spark job with nothing in it.
"""
