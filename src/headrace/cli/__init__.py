"""The `headrace` command: one file per verb, and `main` that joins them."""
