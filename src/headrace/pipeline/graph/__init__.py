"""The graph of a pipeline as plain data: its nodes, its checks, and its levels."""
