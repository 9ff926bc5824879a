"""Benchmarks of recovery: kills beside native Spark, and state against source replay."""
