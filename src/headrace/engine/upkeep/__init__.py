"""Upkeep of a checkpoint: merges, collection, pins, the directories of logged calls."""
