"""Backups of state in other places: taken while a pipeline runs, restored, verified."""
