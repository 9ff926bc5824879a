"""Benchmarks of pipelines that change while they run."""
