"""The `headrace` command: one file per verb, and `main`, which joins them."""

AS_A_PROCESS = "as a process"
"""Says that the command owns its process, and may restart it."""
