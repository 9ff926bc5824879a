"""The work of one task: open state, sort records, run hooks, compute the watermark, seal changes.

`reader` runs a reader task and `level` runs a slot of a level. Both send their output through
`exchange/emitter`. This room must not know Spark, and must not read a clock.
"""
