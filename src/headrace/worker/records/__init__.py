"""Runs computations whose hooks take one record at a time, key by key."""
