"""State: immutable hash-sorted segments, the view over them, caches, compaction.

This room knows cells, not user objects: a cell is (key, kind, field, entry) -> bytes.
"""
