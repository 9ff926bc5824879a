"""The experiments of the paper on Floe's streaming MapReduce."""
