"""Joins of two streams by key: by window, by interval, as of a time, over the whole history."""
