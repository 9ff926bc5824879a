"""Where the files of a checkpoint lie: the contract of a store, and its implementations.

This room knows names, bytes and durability. It does not know what lies under which name.
"""
