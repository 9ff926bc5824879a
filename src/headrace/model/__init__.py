"""The classes that users work with: records, computations, state fields, timers, time, and the
contracts of sources and sinks.

This room must not know epochs, slots, files or Spark.
"""
