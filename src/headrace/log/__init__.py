"""The epoch log, generations, paths: what lies on disk, and the filesystem edge.

This room knows bytes, names and durability. It does not know what an epoch means.
"""
