"""A computation that takes its records one by one, key by key."""
