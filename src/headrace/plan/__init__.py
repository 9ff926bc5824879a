"""Pure planning: key space and ring, routing, watermarks, the epoch's structures.

Nothing here has a clock, a file or a network.
"""
