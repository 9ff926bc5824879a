"""The epoch log, and the names and formats of the small files of a checkpoint.

This room knows names, sealed files and generations. It does not know what an epoch means.
"""
