"""The computations that the steps of the fluent interface use, one idea per file."""
