"""Queries that look at one bid at a time."""
