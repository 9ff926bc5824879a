"""Look-ups in a bounded table that every task has."""
