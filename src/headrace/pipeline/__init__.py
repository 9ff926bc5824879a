"""The pipeline as frozen data, its builder and its validation.

Building a pipeline only describes it, and never executes anything. This room must not know epochs,
state files or Spark.
"""
