"""The `headrace` command: one file per verb, and `main`, which joins them."""
