"""The commands of `headrace bench`."""
