"""Queries over windows of time."""
