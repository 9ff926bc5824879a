"""The experiments of the paper on SEEP."""
