"""Checkpoint intervals: what is only written, when it is made durable, how it is repaired."""
