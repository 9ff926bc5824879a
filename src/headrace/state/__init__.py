"""State: immutable segments sorted by hash, views over them, caches, compaction.

A cell is (key, kind, field, entry) -> bytes. This room knows cells, and must not know user objects.
"""
