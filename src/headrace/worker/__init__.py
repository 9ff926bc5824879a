"""One task: open, order, run, watermark, seal. No Spark, no clock.

`reading` does a reader task, `level` a slot of a level; both end in `emitter`.
"""
