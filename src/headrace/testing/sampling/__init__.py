"""A pipeline over a few records of its real sources, without Spark and without a trace."""
