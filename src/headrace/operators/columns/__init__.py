"""Helpers of all operators: groups of rows, cells of mixed kinds, exact sums, output rows."""
