"""Independent checkers: they read the log and the output as plain files."""
