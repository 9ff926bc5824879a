"""The pipeline as frozen data, its builder and its validation.

Building never executes anything: it only describes. This room knows nothing of
epochs, state files or Spark.
"""
