"""Workloads: well-known questions about streams, as Headrace pipelines, with their input."""
