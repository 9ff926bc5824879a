"""Upkeep of a checkpoint: merges segments, deletes what no reader needs, opens and closes logs of calls, honours pins."""
