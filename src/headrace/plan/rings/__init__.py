"""Rings: who owns which keys, how rows are routed, and which segments count in a slot. Pure."""
