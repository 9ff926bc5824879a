"""The largest rows per key and window."""
