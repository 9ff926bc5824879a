"""Aggregates: monoids whose accumulators are columns."""
