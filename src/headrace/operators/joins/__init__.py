"""Joins of two streams by key: by window, by interval, as of a time, over all records."""
