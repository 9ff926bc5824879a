"""Figures of a run for monitoring: Prometheus metrics, whether it is healthy, structured logs."""
