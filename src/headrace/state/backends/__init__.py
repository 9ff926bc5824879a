"""Stores of applied cells, one per module, and the view that puts unapplied segments on top."""
