"""State to begin with: a table becomes the state of a computation, before its first epoch."""
