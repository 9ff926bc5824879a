"""Decisions of the driver: facts in, a decision out, without clock or I/O."""
