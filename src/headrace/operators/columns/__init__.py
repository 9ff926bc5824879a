"""What all operators share: groups of rows, cells of mixed kinds, exact sums, output rows."""
