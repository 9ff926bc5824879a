"""Look-ups in a bounded table. Every task has the whole table."""
