"""The experiments of the paper on Clonos."""
