"""A computation that takes its records as Arrow tables."""
