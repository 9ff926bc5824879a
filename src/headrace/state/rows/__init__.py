"""Rows of a segment: what all of them share, and how a few of them are read."""
