"""Standard operators: computations that the fluent methods of a stream put into the graph."""
