"""File sinks on a store without directories and renames: an epoch appears as one manifest."""
