"""A whole engine in this process, with a thread for each slot: for experiments without Spark."""
