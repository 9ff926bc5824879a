"""The epoch log, and what the small files of a checkpoint are called and look like.

This room knows names, sealed files and generations. It does not know what an epoch means.
"""
