"""The events of an auction: their columns, how they are generated, and how files are read."""
