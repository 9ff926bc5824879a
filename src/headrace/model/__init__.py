"""What users touch: records, computations, state fields, timers, time, and the
contracts of sources and sinks.

This room knows nothing of epochs, slots, files or Spark.
"""
