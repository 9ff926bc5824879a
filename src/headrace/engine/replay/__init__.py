"""A checkpoint seen from outside: past epochs run again, state read, state dropped by hand."""
