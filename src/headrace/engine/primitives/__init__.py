"""What can be done with state as a whole: read, compare, copy, check, export, cut and compact it.

Each module takes a store, or a state at one epoch, and needs neither code of a pipeline nor Spark.
Most of it works while the pipeline runs; what changes a checkpoint says when it may.
"""
